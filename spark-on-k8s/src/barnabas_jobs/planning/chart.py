"""Line charts over time, as SVG for an HTML page."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from barnabas_jobs.planning.page import time_text

WIDTH: Final = 900
HEIGHT: Final = 220
LEFT: Final = 80
BOTTOM: Final = 40
TOP: Final = 10
COLOURS: Final = ("#3b6ea5", "#c0392b", "#2e8b57", "#8e5ea2", "#d68910", "#117a8b")
Point = tuple[int, float]
"""A point of a line: a time in ms since 1970, and a value."""


def lines(title: str, series: Mapping[str, Sequence[Point]], bound: float | None = None) -> str:
    """Return an SVG chart with a line for each series, and a dashed line at `bound`.

    If no series has points, return a sentence that says so.
    """
    points = [point for each in series.values() for point in each]
    if not points:
        return f"<h2>{escape(title)}</h2><p>There is nothing to draw.</p>"
    first_ms, last_ms = min(time_ms for time_ms, _ in points), max(time_ms for time_ms, _ in points)
    top = max(*(value for _, value in points), bound or 0, 1)

    def place(point: Point) -> str:
        share = (point[0] - first_ms) / max(1, last_ms - first_ms)
        return f"{LEFT + share * (WIDTH - LEFT - 10):.1f},{_height(point[1], top):.1f}"

    drawn = [_line(number, [place(point) for point in each]) for number, each in enumerate(series.values())]
    if bound is not None:
        at = _height(bound, top)
        drawn.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - 10}" stroke="#c0392b" stroke-dasharray="6 4"/>')
    texts = _text(LEFT - 6, TOP + 10, f"{top:,.0f}", "end") + _text(LEFT - 6, HEIGHT - BOTTOM, "0", "end")
    texts += _text(LEFT, HEIGHT - BOTTOM + 16, time_text(first_ms), "start")
    texts += _text(WIDTH - 10, HEIGHT - BOTTOM + 16, time_text(last_ms), "end")
    names = "".join(
        f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9632; {escape(name)}</span> '
        for number, name in enumerate(series)
    )
    picture = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" fill="none">{"".join(drawn)}{texts}</svg>'
    return f"<h2>{escape(title)}</h2><p>{names}</p>{picture}"


def _height(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)


def _line(number: int, places: Sequence[str]) -> str:
    colour = COLOURS[number % len(COLOURS)]
    if len(places) == 1:
        x, y = places[0].split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    return f'<polyline points="{" ".join(places)}" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
