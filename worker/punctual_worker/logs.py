"""Logging of every part: lines for people, or JSON for machines. Times in UTC, to the millisecond.

Client configurations hold secrets and are never logged, not even at debug level.
"""

import json
import logging
import sys
from typing import Final, Literal, TextIO

from punctual_worker.contract.times import format_ms

_REPEAT_SECONDS: Final = 10.0
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class TextFormatter(logging.Formatter):
    """`2026-11-18T20:00:00.000Z INFO  dispatch.loop: text key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        origin = record.name.removeprefix("punctual_worker.")
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        moment = format_ms(int(record.created * 1000))
        line = f"{moment} {record.levelname:<7} {origin}: {record.getMessage()}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line; `extra` fields stand beside our own."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": format_ms(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure_logging(
    *, format: Literal["text", "json"], level: str, stream: TextIO | None = None
) -> None:
    """Send everything to stderr in one form; libraries speak only from warning on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("punctual_worker").setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def kafka_logger() -> logging.Logger:
    """Where Kafka clients log: in an outage each of them would say so many times a second."""
    logger = logging.getLogger("punctual_worker.kafka")
    if not logger.filters:
        logger.addFilter(_OncePerWhile())
    return logger


class _OncePerWhile(logging.Filter):
    """Lets each kind of remark through every 10 seconds; its first word is what kind it is."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().partition(" ")[0]
        if record.created - self._told.get(kind, 0.0) < _REPEAT_SECONDS:
            return False
        self._told[kind] = record.created
        return True
