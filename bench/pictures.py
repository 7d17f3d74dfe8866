"""Small pictures of a run, as SVG: lines over two axes, nothing else. Pure but for writing them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

Points = list[tuple[float, float]]

_WIDTH: Final = 720
_HEIGHT: Final = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 44, 52
_COLOURS: Final = ("#1f5fa8", "#c4511d", "#2e7d4f", "#7a4ea3", "#8a6d1b")
_STEPS: Final = 6


@dataclass(frozen=True)
class _Axis:
    """From values to places in the picture."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            decades = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
            return [10.0**decade for decade in decades]
        rough = (self.high - self.low) / _STEPS
        magnitude = 10 ** math.floor(math.log10(rough))
        step = next(s * magnitude for s in (1, 2, 2.5, 5, 10) if s * magnitude >= rough)
        return [self.low + n * step for n in range(int((self.high - self.low) / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Picture:
    """What a picture is called, and how its axes are."""

    title: str
    across: str
    up: str
    logarithmic: bool = False
    percent: bool = False

    def draw(self, lines: dict[str, Points]) -> str:
        """The SVG text."""
        xs = [x for points in lines.values() for x, _ in points]
        ys = [y for points in lines.values() for _, y in points]
        left, right = _LEFT, _WIDTH - _RIGHT
        if self.logarithmic:
            low = 10 ** math.floor(math.log10(max(min(xs), 0.1)))
            high = 10 ** math.ceil(math.log10(max(*xs, low * 10)))
            across = _Axis(low, high, left, right, logarithmic=True)
        else:
            across = _Axis(0, max(*xs, 1e-3), left, right)
        top = 100.0 if self.percent else max(*ys, 1e-3) * 1.1
        up = _Axis(0, top, _HEIGHT - _BOTTOM, _TOP)
        parts = [*self._frame(across, up)]
        for number, (name, points) in enumerate(lines.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            path = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
            y = _HEIGHT - _BOTTOM - 12 - 16 * (len(lines) - 1 - number)
            parts.append(_text(right - 8, y, name, anchor="end", colour=colour))
        return _document(parts)

    def _frame(self, across: _Axis, up: _Axis) -> Iterable[str]:
        yield _text(_LEFT, 24, self.title, size=15)
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for tick in up.ticks():
            y = up.place(tick)
            yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
            yield _text(_LEFT - 8, y + 4, _short(tick), anchor="end")
        for tick in across.ticks():
            x = across.place(tick)
            yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#eee"/>'
            yield _text(x, bottom + 18, _short(tick), anchor="middle")
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" stroke="#444" fill="none"/>'
        yield _text((_LEFT + right) / 2, _HEIGHT - 12, self.across, anchor="middle")
        yield _text(_LEFT, _TOP - 6, self.up, size=11)


PICTURES: Final = {
    "lateness": Picture(
        "Lateness at steady rates",
        "milliseconds after the time asked for",
        "% of the messages",
        logarithmic=True,
        percent=True,
    ),
    "burst": Picture(
        "Messages due at one instant", "seconds after that instant", "% written", percent=True
    ),
    "memory": Picture("Memory of a dispatcher", "messages pending", "MB resident"),
}


def save(folder: Path, curves: dict[str, dict[str, Points]]) -> list[Path]:
    """Write the pictures for which there is something to show."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, lines in curves.items():
        path = folder / f"bench-{name}.svg"
        path.write_text(PICTURES[name].draw(lines))
        written.append(path)
    return written


def _document(parts: list[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{inside}\n</svg>\n'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#333"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e4 else f"{value:g}"
