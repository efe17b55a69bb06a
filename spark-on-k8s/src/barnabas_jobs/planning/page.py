"""A report as one HTML page: tables and bars as SVG, all in the file itself, so that it opens without a server."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

ROW_HEIGHT: Final = 22
LABEL_WIDTH: Final = 220
BAR_WIDTH: Final = 460
TEXT_WIDTH: Final = 220
LABEL_CHARACTERS_MAX: Final = 32
STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "th:first-child,td:first-child{text-align:left}svg text{font:12px system-ui,sans-serif;fill:#222}"
    ".bar{fill:#3b6ea5}.over{fill:#c0392b}"
)


class Bar(NamedTuple):
    """One bar; `text` stands behind it. One that is over its share is drawn in another colour."""

    label: str
    value: float
    text: str
    is_over: bool = False


def page(title: str, *parts: str) -> str:
    """The whole document."""
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{head}<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n"


def paragraph(text: str) -> str:
    """A sentence or more."""
    return f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Numbers with separators of thousands."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(each))}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """A horizontal bar each, the longest over the whole width."""
    largest = max((row.value for row in rows), default=0) or 1
    drawn = "".join(_bar(number, row, row.value / largest) for number, row in enumerate(rows))
    width, height = LABEL_WIDTH + BAR_WIDTH + TEXT_WIDTH, ROW_HEIGHT * len(rows)
    return f'<h2>{escape(title)}</h2><svg width="{width}" height="{height}" role="img">{drawn}</svg>'


def _bar(number: int, row: Bar, share: float) -> str:
    top, width = number * ROW_HEIGHT, max(1, round(share * BAR_WIDTH))
    kind = "over" if row.is_over else "bar"
    label = row.label if len(row.label) <= LABEL_CHARACTERS_MAX else f"{row.label[: LABEL_CHARACTERS_MAX - 1]}…"
    return (
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 3}" width="{width}" height="{ROW_HEIGHT - 6}"/>'
        f'<text x="{LABEL_WIDTH + width + 6}" y="{top + 15}">{escape(row.text)}</text>'
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def bytes_text(count: float) -> str:
    """In the largest unit of which it has one: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
