"""The short form of `make chaos`: every kind of fault, then every message accounted for."""

from pathlib import Path

import pytest
from chaos.run import run, table


@pytest.mark.timeout(600)
def test_nothing_is_lost_twice_or_early_whatever_is_killed(tmp_path: Path) -> None:
    result = run(tmp_path, seed=1, seconds=0)
    print(table(result))
    assert result.ok, table(result)
    assert len({fault.kind for fault in result.faults}) == 7
    assert len(result.requests) > 500
    assert result.stories["recurring fires"] > 20
    assert result.stories["recurring paused"] > 0
    assert result.stories["single paused"] > 0
