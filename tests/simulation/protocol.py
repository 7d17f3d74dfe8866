"""What the simulated dispatcher is made of: the real code, and the order of the steps around it.

A mutant replaces one of these.
"""

from collections.abc import Callable
from dataclasses import dataclass

from punctual_worker.dispatch import checkpoint
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.restoring import TakeOver


@dataclass(frozen=True)
class Protocol:
    """The real parts and the right order, unless said otherwise."""

    partition: type[Partition] = Partition
    take_over: type[TakeOver] = TakeOver
    encode: Callable[[Checkpoint], str] = checkpoint.encode
    decode: Callable[[str], Checkpoint] = checkpoint.decode

    # the broker's side of the bargain
    generations_checked: bool = True
    generation_asked_when_sent: bool = False
    """The generation is that of the moment, not the one in which the turn was planned."""
    fetch_is_stable: bool = True
    """The committed offset is asked for so that the broker waits for pending transactions."""
    keyed_by_id: bool = False
    """Action records have the schedule id as key, as in other schedulers."""

    # the order of the steps
    settles_before_commit: bool = False
    settles_after_failed_commit: bool = False
    tombstones_fired_before_commit: bool = False
    tombstones_decisions: bool = True
    tombstones_in_transaction: bool = True
    rearms_in_transaction: bool = True
    fires_in_transaction: bool = True
    """The next fire of a recurring schedule is armed in the transaction that handles the last."""
    arms_fires_though_refused: bool = False
    records_every_turn: bool = True
    """The checkpoint is also written into the log, by every turn."""
    keeps_partitions_it_lost: bool = False

    # taking over
    reads_to_high_watermark: bool = True
    reads_uncommitted: bool = False

    # the local store
    trusts_old_tables: bool = False
