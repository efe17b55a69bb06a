"""A report as one HTML page with tables and SVG bars, which needs no server and no other file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

import msgspec

ROW_HEIGHT: Final = 22
LABEL_WIDTH: Final = 340
BAR_WIDTH: Final = 420
TEXT_WIDTH: Final = 140
LABEL_CHARACTERS_MAX: Final = 52
FINDINGS_SHOWN_MAX: Final = 100
UNITS: Final = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))
STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "th:first-child,td:first-child{text-align:left}svg text{font:12px system-ui,sans-serif;fill:#222}"
    ".bar{fill:#3b6ea5}.over{fill:#c0392b}.about,.legend{color:#666}.findings{color:#c0392b}"
)
WIDTH: Final = 900
HEIGHT: Final = 220
LEFT: Final = 80
BOTTOM: Final = 40
TOP: Final = 10
COLOURS: Final = ("#3b6ea5", "#c0392b", "#2e8b57", "#8e5ea2", "#d68910", "#117a8b")
Point = tuple[int, float]
"""A point of a line: a time in ms since 1970, and a value."""


def time_text(time_ms: int) -> str:
    """Return a time in UTC, like `2013-01-31 06:30`."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def span_text(span_ms: float) -> str:
    """Return a time span in the largest unit that gives at least two: 36.0 hours, 90.0 seconds, 3 ms."""
    for name, unit_ms in UNITS:
        if span_ms >= 2 * unit_ms:
            return f"{span_ms / unit_ms:,.1f} {name}"
    return f"{span_ms:,.0f} ms"


class Bar(NamedTuple):
    """A bar with `text` after it; the bar is red if `is_over` is true."""

    label: str
    value: float
    text: str
    is_over: bool = False


def about(made_ms: int, bootstrap: str) -> str:
    """Return the sentence that says when a report was made, and which cluster it describes."""
    return f"This report was made at {time_text(made_ms)} UTC for the cluster at {bootstrap}."


def findings(found: Sequence[str]) -> str:
    """Return the list of findings for the top of a page, or a sentence if there are none."""
    if not found:
        return paragraph("Nothing is wrong.")
    items = "".join(f"<li>{escape(each)}</li>" for each in found[:FINDINGS_SHOWN_MAX])
    more = f"<li>{len(found) - FINDINGS_SHOWN_MAX:,} more</li>" if len(found) > FINDINGS_SHOWN_MAX else ""
    return f'<h2>Findings</h2><ul class="findings">{items}{more}</ul>'


def page(title: str, about_it: str, *parts: str) -> str:
    """Return the complete HTML page; `about_it` is a line of text that says what the report describes."""
    about = f'<p class="about">{escape(about_it)}</p>'
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{head}<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{about}{''.join(parts)}</body></html>\n"


def paragraph(text: str) -> str:
    """Return an HTML paragraph with the text, which it escapes."""
    return f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table; text is escaped, numbers have thousands separators, and None is an empty cell."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(each))}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(title: str, rows: Sequence[Bar], legend: str = "") -> str:
    """Return an SVG chart with a horizontal bar for each row, and with `legend` below if there are red bars."""
    largest = max((row.value for row in rows), default=0) or 1
    drawn = "".join(_bar(number, row, row.value / largest) for number, row in enumerate(rows))
    width, height = LABEL_WIDTH + BAR_WIDTH + TEXT_WIDTH, ROW_HEIGHT * len(rows)
    picture = f'<h2>{escape(title)}</h2><svg width="{width}" height="{height}" role="img">{drawn}</svg>'
    if not legend or not any(row.is_over for row in rows):
        return picture
    return f'{picture}<p class="legend"><span style="color:#c0392b">&#9632;</span> {escape(legend)}</p>'


def _bar(number: int, row: Bar, share: float) -> str:
    top, width = number * ROW_HEIGHT, max(1, round(share * BAR_WIDTH))
    kind = "over" if row.is_over else "bar"
    label = row.label if len(row.label) <= LABEL_CHARACTERS_MAX else _middle_left_out(row.label)
    return (
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 3}" width="{width}" height="{ROW_HEIGHT - 6}"/>'
        f'<text x="{LABEL_WIDTH + width + 6}" y="{top + 15}">{escape(row.text)}</text>'
    )


def _middle_left_out(label: str) -> str:
    """Return the label without its middle; its end stays, because paths differ at their ends."""
    half = (LABEL_CHARACTERS_MAX - 1) // 2
    return f"{label[:half]}…{label[-half:]}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def bytes_text(count: float) -> str:
    """Return a size in the largest unit that gives at least one, like 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


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


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that could not be read, with the reason; `is_gone` is true if the topic was deleted while the job ran."""

    topic: str
    why: str
    is_gone: bool


def unread_parts(unread: Sequence[Unread]) -> list[str]:
    """Return the parts of an HTML page about the topics that could not be read, or an empty list if there are none."""
    if not unread:
        return []
    rows = [(each.topic, each.why) for each in unread]
    return [
        "<h2>Topics that could not be read</h2>",
        paragraph("The figures do not include these topics."),
        table(("topic", "why"), rows),
    ]
