"""The dialects that a Scheduler can name are those that intake knows."""

from typing import get_args

from punctual_operator.api.types import Scheduler, Source
from punctual_operator.resources.configs import part_settings
from punctual_worker.contract.dialects import Dialect
from punctual_worker.settings import Settings


def test_every_dialect_reaches_intake() -> None:
    names = get_args(Source.model_fields["dialect"].annotation)
    sources = [{"topic": f"old-{name}", "dialect": name} for name in names]
    scheduler = Scheduler.model_validate(
        {
            "name": "demo",
            "namespace": "default",
            "uid": "1",
            "generation": 1,
            "spec": {
                "kafka": {"bootstrapServers": ["kafka:9092"]},
                "intake": {"sources": sources},
            },
        }
    )
    settings = Settings.model_validate(part_settings(scheduler, "intake"))
    assert set(settings.sources.values()) == set(Dialect)
    assert not Settings.model_validate(part_settings(scheduler, "dispatcher")).sources
