"""The checkpoint as text: what goes in comes out, within what a broker keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from punctual_worker.contract import actions
from punctual_worker.contract.topics import MAX_REQUEST_PARTITIONS
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.checkpoint import Checkpoint

offsets = st.dictionaries(st.integers(0, 255), st.integers(0, 2**40), min_size=1, max_size=40)
keys = st.builds(
    actions.action_key,
    st.builds(actions.Coordinates, st.just("0"), st.integers(0, 255), st.integers(0, 2**60)),
    st.integers(0, 9),
)


@given(
    position=st.integers(0, 2**60),
    cursor=st.one_of(st.just(b""), st.builds(actions.order_key, st.integers(0, 2**48), keys)),
    watermarks=st.dictionaries(st.sampled_from(["0", "1a2b3c4d"]), offsets),
    writer=st.sampled_from(["", "app-dispatcher-0123"]),
)
def test_a_checkpoint_survives_being_written(
    position: int, cursor: bytes, watermarks: dict[str, dict[int, int]], writer: str
) -> None:
    checkpoint = Checkpoint(position, cursor, watermarks, writer)
    assert checkpoints.decode(checkpoints.encode(checkpoint)) == checkpoint


def test_the_most_request_partitions_we_allow_fit_into_an_offsets_metadata() -> None:
    marks = dict.fromkeys(range(MAX_REQUEST_PARTITIONS), 10**14)
    full = Checkpoint(
        10**15, actions.order_key(2**47, b"0/255/" + b"9" * 15), {"0": marks}, "w" * 99
    )
    assert len(checkpoints.encode(full)) <= checkpoints.METADATA_LIMIT


def test_more_than_fits_is_refused_instead_of_cut() -> None:
    marks = dict.fromkeys(range(1000), 10**15)
    with pytest.raises(checkpoints.CheckpointTooLargeError):
        checkpoints.encode(Checkpoint(0, b"", {"0": marks}))


@pytest.mark.parametrize("text", ["", "2 0   ", "1 x   ", "not ours at all", "1 0 5:a 0=zz "])
def test_what_is_not_a_checkpoint_is_not_guessed_at(text: str) -> None:
    with pytest.raises(checkpoints.InvalidCheckpointError):
        checkpoints.decode(text)
