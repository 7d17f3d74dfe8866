"""What the tests of the contract share: one intake and one dispatcher."""

from collections.abc import Iterator

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from support.scheduler import RunningScheduler

_started: list[RunningScheduler] = []


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """These processes end with the last test of the contract: the others need the processor."""
    if _started and (nextitem is None or not nextitem.path.name.startswith("test_semantics")):
        _started.pop().stop()


@pytest.fixture(scope="session")
def scheduler(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningScheduler]:
    """Shared by the tests of the contract; the others have their own."""
    running = RunningScheduler(
        broker.bootstrap_servers, "semantics", tmp_path_factory.mktemp("semantics")
    )
    try:
        running.start()
        _started.append(running)
        # the first request finds everything cold: tests with short times come after it
        warm = running.new_destination("warm-up")
        running.request({"deliver-to": warm, "delay": "0s"})
        running.delivered(warm, 1, settle=0)
        yield running
    finally:
        running.stop()


@pytest.fixture
def out(scheduler: RunningScheduler, app_id: str) -> str:
    """A destination of this test alone."""
    return scheduler.new_destination(app_id)
