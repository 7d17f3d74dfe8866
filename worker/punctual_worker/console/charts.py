"""Bars for a histogram, in numbers that a template turns into SVG. Pure."""

from typing import Final, NamedTuple

from punctual_worker.console.overview import Picture
from punctual_worker.contract.times import format_ms

WIDTH: Final = 960
HEIGHT: Final = 180
_BASE: Final = 20
"""Room for the axis below the bars."""
_GAP: Final = 2
_LABELS: Final = 6


class Bar(NamedTuple):
    """One stretch of time."""

    x: float
    y: float
    width: float
    height: float
    number: int
    start: str


class Chart(NamedTuple):
    """A picture, ready to be drawn."""

    width: int
    height: int
    base: int
    bars: list[Bar]
    labels: list[tuple[float, str]]
    most: int
    total: int


def bars(picture: Picture) -> Chart:
    """Heights by the highest bar; anything at all is at least two pixels."""
    most = max(picture.counts, default=0)
    room = HEIGHT - _BASE - 10
    width = WIDTH / len(picture.counts)
    drawn = []
    for index, count in enumerate(picture.counts):
        height = max(round(room * count / most, 1), 2.0) if count else 0.0
        start = format_ms(picture.start + index * picture.span.step_ms)
        drawn.append(
            Bar(
                round(index * width, 2),
                HEIGHT - _BASE - height,
                round(width - _GAP, 2),
                height,
                count,
                start,
            )
        )
    every = max(len(drawn) // _LABELS, 1)
    labels = [(bar.x, bar.start) for bar in drawn[::every]]
    return Chart(WIDTH, HEIGHT, HEIGHT - _BASE, drawn, labels, most, sum(picture.counts))
