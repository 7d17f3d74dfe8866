"""Log lines that people and machines can read."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from punctual_worker.logs import configure_logging


@pytest.fixture(autouse=True)
def _root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_has_time_level_origin_and_extra_fields() -> None:
    stream = io.StringIO()
    configure_logging(format="text", level="info", stream=stream)

    logging.getLogger("punctual_worker.dispatch.loop").info("owns %d", 3, extra={"lag": 7})

    moment, line = stream.getvalue().split(" ", 1)
    assert line == "INFO    dispatch.loop: owns 3 lag=7\n"
    assert moment.endswith("Z")
    assert len(moment) == len("2026-11-18T20:00:00.000Z")


def test_json_is_one_object_per_line_with_the_traceback_inside() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)

    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("punctual_worker.x").exception("failed", extra={"partition": 1})

    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["message"], entry["partition"]) == ("error", "failed", 1)
    assert "ValueError: no" in entry["exception"]


def test_libraries_speak_only_from_warning_on() -> None:
    stream = io.StringIO()
    configure_logging(format="text", level="debug", stream=stream)

    logging.getLogger("some.library").info("chatter")
    logging.getLogger("punctual_worker.x").debug("ours")

    assert stream.getvalue().count("\n") == 1
