"""What every test may use. The broker is a real one, started once for the whole run."""

import uuid
from collections.abc import Iterator

import pytest
from punctual_worker.local.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One embedded broker; tests that break it start one of their own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def app_id() -> str:
    """Topics, groups and transactional ids of this test alone."""
    return f"test-{uuid.uuid4().hex[:10]}"
