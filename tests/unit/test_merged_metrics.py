"""Metrics of several parts under one address."""

from dataclasses import dataclass
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from punctual_worker.local.merged_metrics import MergedMetrics
from punctual_worker.local.parts import Part


@dataclass
class Answering:
    name: str
    text: str

    def metrics(self) -> str:
        return self.text


def test_families_of_one_name_are_put_together_and_told_apart_by_part() -> None:
    help_lines = "# HELP punctual_x_total Things.\n# TYPE punctual_x_total counter\n"
    parts = [
        Answering("intake", f'{help_lines}punctual_x_total{{code="a"}} 1.0\n'),
        Answering("dispatcher", f'{help_lines}punctual_x_total{{code="a"}} 2.0\n'),
        Answering("starting", ""),
    ]
    registry = CollectorRegistry()
    registry.register(MergedMetrics(cast(list[Part], parts)))

    text = generate_latest(registry).decode()

    assert text.count("# TYPE punctual_x_total counter") == 1
    assert 'punctual_x_total{code="a",part="intake"} 1.0' in text
    assert 'punctual_x_total{code="a",part="dispatcher"} 2.0' in text
