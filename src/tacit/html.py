"""Pieces of HTML for notebooks, and charts as SVG for notebooks and reports.

Text and lines in a notebook have the reader's own colours, light or dark; only the edge of a
warning has its own. Charts have no script, and are in print as on a screen: their colours come from
the page by class, and every point or bar has a ``<title>`` that says its number.
Names come from files and from other people: each goes through ``plain``, then is escaped.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

LONGEST = 200  # characters of a name
EDGE = {True: "#d32f2f", False: "currentColor"}  # of a box, loud or not; seen on white and on black
# control characters, surrogates and those that turn the direction of what follows
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_CELL = "text-align:left;vertical-align:top;padding:.15em 1.2em .15em 0;font-size:100%"
WIDTH, HEIGHT = 480, 246  # of a chart, in units that a page scales
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 28, 40  # around what is drawn
LABEL, ROW = 170, 20  # of a bar: at most, and its height
POINTS = 120  # of a curve that tell their number


def plain(text: object, most: int = LONGEST) -> str:
    """Text of one line in characters that are seen, cut in words if it is longer than ``most``.

    What cannot be seen, or turns the direction of what comes after it, is shown as U+FFFD.
    """
    whole = str(text)
    words = " ".join(whole[: 2 * most].split())
    seen = "".join("\ufffd" if unicodedata.category(c) in UNSEEN else c for c in words)
    if len(seen) <= most and len(whole) <= 2 * most:
        return seen
    kept = seen[:most].rstrip()
    return f"{kept}… ({len(whole) - len(kept)} more characters)"


def text(value: object, most: int = 400) -> str:
    """A name as the text of an element or attribute."""
    return escape(plain(value, most))


def several(names: Iterable[object], most: int = 5, longest: int = 40) -> str:
    """The first names, and how many others there are."""
    found = list(names)
    text = ", ".join(plain(name, longest) for name in found[:most])
    return text if len(found) <= most else f"{text} and {len(found) - most} others"


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Rows of text, the first cell as their heading; all escaped here."""
    head = ""
    if header:
        cells = "".join(f'<th scope="col" style="{_CELL}">{escape(h)}</th>' for h in header)
        head = f"<thead><tr>{cells}</tr></thead>"
    body = ""
    for first, *others in rows:
        cells = "".join(f'<td style="{_CELL}">{text(value)}</td>' for value in others)
        body += f'<tr><th scope="row" style="{_CELL}">{text(first)}</th>{cells}</tr>'
    return f'<table style="background:none">{head}<tbody>{body}</tbody></table>'


def box(words: str, *, loud: bool = False) -> str:
    """A line that is seen before all others; ``loud`` where nothing is promised."""
    style = f"border-left:.3em solid {EDGE[loud]};padding:.2em .6em;margin:.3em 0"
    return f'<div style="{style}"><strong>{text(words, 600)}</strong></div>'


def small(words: str) -> str:
    """A paragraph to read after the numbers."""
    style = "font-size:90%;max-width:60em;margin:.4em 0;white-space:pre-line"
    return f'<p style="{style}">{text(words, 3000)}</p>'


def card(title: str, *parts: str) -> str:
    """One object: a title, then parts that are HTML already."""
    return f"<div><div><strong>{text(title)}</strong></div>{''.join(parts)}</div>"


def never_raises(method: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """For ``_repr_html_``: None, and so the notebook's plain text, where an object is broken."""

    @functools.wraps(method)
    def shown(self: Any) -> str | None:
        try:
            return method(self)
        except Exception:  # whatever a file that went away, or a number that is none, does
            return None

    return shown


# --- charts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Numbers as shares of an axis, from 0 to 1.

    log  where all numbers are positive and span more than a factor of 20
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(cls, values: Iterable[float]) -> Scale:
        finite = [float(v) for v in values if math.isfinite(v)]
        low, high = min(finite), max(finite)
        return cls(low, high, low > 0 and high > 20 * low)

    def at(self, value: float) -> float:
        low, high, v = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        span = high / 2 - low / 2  # halves, as a difference may overflow
        return (v / 2 - low / 2) / span if span else 0.5

    def ticks(self, most: int = 7, whole: bool = False) -> list[float]:
        """Round numbers on the axis; ``whole``: no fractions. None beyond 1e-100 and 1e100."""
        from matplotlib.ticker import LogLocator, MaxNLocator  # a notebook draws no axis

        ends = [abs(v) for v in (self.low, self.high) if v]
        if not ends or min(ends) < 1e-100 or max(ends) > 1e100:
            return [self.low]
        digits = (1, 2, 5) if self.high < 1e3 * self.low else (1,)
        round_numbers = (
            LogLocator(subs=digits, numticks=most + 2)
            if self.log
            else MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole)
        )
        found = map(float, round_numbers.tick_values(self.low, self.high))
        return [v for v in found if self.low <= v <= self.high]


def labels(values: Sequence[float]) -> list[str]:
    """Numbers as short as tells them apart."""
    found: list[str] = []
    for digits in range(6, 18):
        found = [f"{0.0 if abs(v) < 1e-300 else v:.{digits}g}" for v in values]
        if len(set(found)) == len(values):
            break
    return [label.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-") for label in found]


def number(value: float | str) -> str:
    """A number with few digits; words, such as "NaN", as they are."""
    return text(value) if isinstance(value, str) else labels([float(f"{value:.5g}")])[0]


def picture(body: str, words: str, width: float, height: float, name: str, of: str = "") -> str:
    """A picture with ``words`` for those who do not see it; arrow keys go along its titles."""
    return (
        f'<svg class="chart {of}" id="{text(name)}" role="img" tabindex="0" '
        f'aria-label="{text(words, 2000)}" viewBox="0 0 {width} {height}">{body}</svg>'
    )


def curve(
    x: Sequence[float], y: Sequence[float], title: str, words: str, name: str, axis: str = "round"
) -> str:
    """A curve of whole numbers ``x`` in rising order; what is not finite is a gap."""
    across, up = Scale(x[0], x[-1]), Scale.of(y)
    if up.low == up.high:
        margin = abs(up.low) / 10 or 1.0
        up = Scale(up.low - margin, up.high + margin)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def right(v: float) -> float:
        return round(LEFT + wide * across.at(v), 1)

    def down(v: float) -> float:
        return round(TOP + high * (1 - up.at(v)), 1)

    parts = [_axis(up.ticks(), down, across=False), _axis(across.ticks(whole=True), right, TOP)]
    parts.append(_name(axis, LEFT + wide / 2, HEIGHT - 4, "middle"))
    parts.append(_name(title, 2, 16, "start"))
    path, pen = "", "M"
    for k in _kept(y):
        path += f"{pen}{right(x[k])} {down(y[k])}" if math.isfinite(y[k]) else ""
        pen = "L" if math.isfinite(y[k]) else "M"
    parts.append(f'<path class="line" d="{path}"/>')
    told = _few([k for k in range(len(y)) if math.isfinite(y[k])])
    half = min(wide / max(1, len(told)), 40) / 2
    for k in told:  # a strip as high as the chart, so that the pointer need not hit the point
        at, point = right(x[k]), f"M{right(x[k])} {down(y[k])}h0"
        said = f"{text(axis)} {x[k]:.15g}\n{text(title)}: {number(y[k])}"
        parts.append(
            f'<g class="point{" seen" if len(told) <= 40 else ""}"><title>{said}</title>'
            f'<rect x="{at - half:.1f}" y="{TOP}" width="{2 * half:.1f}" height="{high}"/>'
            f'<path d="{point}"/></g>'
        )
    return picture("".join(parts), words, WIDTH, HEIGHT, name)


def _name(words: str, x: float, y: float, anchor: str) -> str:
    """What an axis shows."""
    return f'<text class="name" x="{x}" y="{y}" text-anchor="{anchor}">{text(words)}</text>'


def bars(
    names: Sequence[object],
    values: Sequence[float],
    words: str,
    name: str,
    axis: str = "value",
    ends: Sequence[tuple[float, float]] = (),
    told: Sequence[tuple[str, str]] = (),
) -> str:
    """Finite numbers as horizontal bars from zero, in the order given.

    Arguments:
        ends: their intervals, as lines across the ends of the bars
        told: each number and its interval in words, if not as they are drawn
    """
    every = [0.0, *values, *(end for pair in ends for end in pair)]
    scale = Scale(min(every), max(every)) if values else Scale(0.0, 1.0)
    first = min(LABEL, 24 + 9 * max((len(_cut(label)) for label in names), default=0))
    wide, height = WIDTH - first - RIGHT - 60, ROW * len(values) + 46  # numbers stand at the right

    def right(v: float) -> float:
        return round(first + wide * scale.at(v), 1)

    parts = [_axis(scale.ticks(), right, bottom=height - 42)]
    parts.append(_name(axis, first + wide / 2, height - 5, "middle"))
    for k, (label, value) in enumerate(zip(names, values, strict=True)):
        left, end, y = *sorted((right(0.0), right(value))), ROW * k + 4
        said, whisker = told[k][0] if told else number(value), ""
        title = f"{text(label)}: {said}"
        if ends:
            low, high = ends[k]
            title += f" ({told[k][1] if told else f'{number(low)} to {number(high)}'})"
            at = f"M{right(low)} {y + 3}v8m0 -4H{right(high)}m0 -4v8"
            whisker = f'<path class="whisker" d="{at}"/>'
        parts.append(
            f'<g class="bar"><title>{title}</title>'
            f'<text x="{first - 6}" y="{y + 12}" text-anchor="end">{text(_cut(label))}</text>'
            f'<rect x="{left}" y="{y}" width="{max(end - left, 0.5):.1f}" height="{ROW - 6}"/>'
            f'{whisker}<text class="number" x="{WIDTH - 2}" y="{y + 12}" text-anchor="end">{said}'
            "</text></g>"
        )
    return picture("".join(parts), words, WIDTH, height, name, "bars")


def _axis(
    ticks: Sequence[float],
    at: Callable[[float], float],
    top: float = 4,
    across: bool = True,
    bottom: float = HEIGHT - BOTTOM,
) -> str:
    """Lines of a grid and their numbers; along the bottom, or up the left side."""
    lines = words = ""
    for tick, label in zip(ticks, labels(ticks), strict=True):
        place = at(tick)
        if across:
            lines += f"M{place} {top}V{bottom}"
            words += f'<text x="{place}" y="{bottom + 17}" text-anchor="middle">{label}</text>'
        else:
            lines += f"M{LEFT} {place}H{WIDTH - RIGHT}"
            words += f'<text x="{LEFT - 6}" y="{place + 4}" text-anchor="end">{label}</text>'
    return f'<path class="grid" d="{lines}"/>{words}'


def _kept(y: Sequence[float]) -> list[int]:
    """The points of a long curve that an eye can tell: of every few, the least and the largest."""
    size = -(-len(y) // 300)
    if size <= 2:
        return list(range(len(y)))
    found = {0, len(y) - 1}
    for first in range(0, len(y), size):
        some = range(first, min(first + size, len(y)))
        finite = [k for k in some if math.isfinite(y[k])]
        ends = (min(finite, key=y.__getitem__), max(finite, key=y.__getitem__)) if finite else some
        found |= {*ends}
    return sorted(found)


def _few(points: Sequence[int]) -> list[int]:
    """At most ``POINTS`` of them, the first and the last among them."""
    few = min(POINTS, len(points))
    return [points[k * (len(points) - 1) // max(1, few - 1)] for k in range(few)]


def _cut(label: object) -> str:
    words = plain(label)
    return words if len(words) <= 20 else f"{words[:19]}…"
