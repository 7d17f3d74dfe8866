"""What every test may use. The broker is a real one, started once for the whole run."""

import uuid
from collections.abc import Iterator

import pytest
from punctual_worker.local.broker import EmbeddedBroker

_BESIDE = ("kubernetes", "simulation", "unit")
_BESIDE_FILES = ("audit", "broker", "intake_restarts", "jars", "tether", "topics", "up")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two halves that run beside each other, because most tests wait most of the time."""
    for item in items:
        folders = item.path.relative_to(item.config.rootpath).parts
        file = item.path.stem.removeprefix("test_")
        beside = any(name in folders for name in _BESIDE) or file in _BESIDE_FILES
        item.add_marker(pytest.mark.xdist_group("beside" if beside else "main"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One embedded broker; tests that break it start one of their own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def app_id() -> str:
    """Topics, groups and transactional ids of this test alone."""
    return f"test-{uuid.uuid4().hex[:10]}"
