"""A bench that overlooked a lost message would praise the loss: fewer messages are faster."""

import pytest

from bench.observing import Seen, account, percentile
from bench.records import BenchError, number_of, value_of

DUES_MS = [1_000, 2_000, 3_000]
ALL_WELL = [Seen(0, 1.1, 1_000), Seen(2, 3.1, 3_050), Seen(1, 2.1, 2_001)]


def test_each_once_and_in_time_is_accepted_in_any_order() -> None:
    account(ALL_WELL, DUES_MS)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (ALL_WELL[:-1], "1 were lost"),
        ([*ALL_WELL, ALL_WELL[0]], "1 repeated"),
        ([*ALL_WELL[1:], Seen(0, 1.1, 999)], "1 early"),
        ([*ALL_WELL, Seen(3, 4.0, 4_000)], "1 not ours"),
    ],
)
def test_whatever_is_wrong_is_an_error_that_counts_it(seen: list[Seen], told: str) -> None:
    with pytest.raises(BenchError, match=told):
        account(seen, DUES_MS)


def test_a_value_has_two_hundred_bytes_and_tells_its_number() -> None:
    assert [len(value_of(n)) for n in (0, 9_999_999)] == [200, 200]
    assert number_of(value_of(9_999_999)) == 9_999_999


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(share: float, wanted: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == wanted
