"""The short form of `make chaos`: faults of our parts, then every message accounted for."""

from pathlib import Path

import pytest
from chaos.run import run, table

BROKER_KILL = frozenset({"broker kill -9"})
"""Left to `make chaos` while it can still end with a message delivered twice, as it did once
(docs/design.md, known limits). To come back when that is closed."""


@pytest.mark.timeout(600)
def test_nothing_is_lost_twice_or_early_whatever_is_killed(tmp_path: Path) -> None:
    result = run(tmp_path, seed=1, seconds=0, without=BROKER_KILL)
    print(table(result))
    assert result.ok, table(result)
    assert len({fault.kind for fault in result.faults}) == 6
    assert len(result.requests) > 500
