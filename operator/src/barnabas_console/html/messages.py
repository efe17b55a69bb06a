"""The page of a topic's messages: the query, the progress of the search, and a row for each message."""

from collections.abc import Sequence
from typing import Final

import htpy as h

from barnabas_console.html.frame import Frame, link, path_of, whole
from barnabas_console.model.messages import FORMATS, ISOLATIONS, LIMIT_MAX, NOT_BEGUN, Progress, Shown

HEADS: Final = ("Partition", "Offset", "Time", "Key", "Value", "Headers")


def messages(frame: Frame, topic: str, given: dict[str, str]) -> h.Element:
    """Return the page, whose messages come as events; `given` is the query of its address."""
    here = path_of("topics", topic, "messages")
    stream = link(frame, f"{here}/stream", **given)
    follows = given.get("follow") == "1"
    return whole(
        frame,
        f"Messages of {topic}",
        _query(frame, here, given),
        h.p[
            h.a(".button", href=link(frame, here, **{**given, "download": "jsonl", "follow": "0"}))[
                "Export JSON lines"
            ],
            h.a(".button", href=link(frame, here, **{**given, "download": "csv", "follow": "0"}))["Export CSV"],
            h.a(href=link(frame, path_of("topics", topic)))["To the topic"],
        ],
        h.div("#stream", {"hx-ext": "sse", "sse-connect": stream, "sse-close": "end"}, data_follows=follows)[
            h.p(".count")[
                h.span("#progress", {"sse-swap": "progress", "role": "status"})["Searching…"],
                h.button("#stop", type="button")["Stop"],
            ],
            h.div(".wide", tabindex="0")[
                h.table[
                    h.thead[h.tr[[h.th(scope="col")[each] for each in HEADS]]],
                    h.tbody("#rows", {"sse-swap": "rows", "hx-swap": "beforeend"}),
                ]
            ],
        ],
    )


def _query(frame: Frame, here: str, given: dict[str, str]) -> h.Element:
    def text(name: str, title: str, hint: str = "") -> h.Element:
        return h.label[title, h.input(name=name, value=given.get(name, ""), placeholder=hint, maxlength="2000")]

    def choice(name: str, title: str, values: Sequence[str]) -> h.Element:
        chosen = given.get(name, values[0])
        return h.label[title, h.select(name=name)[[h.option(value=v, selected=v == chosen)[v] for v in values]]]

    return h.form(".query", method="get", action=link(frame, here))[
        text("from", "From", "-50, start, end, offset, time"),
        text("until", "Until", "2026-11-29T06:00:00Z"),
        text("partition", "Partition", "all"),
        text("lookup", "Look up key", "reads one partition"),
        text("key", "Key has"),
        text("value", "Value has"),
        text("header", "Header has", "name=value"),
        text("limit", "At most", f"up to {LIMIT_MAX}"),
        choice("format", "Format", FORMATS),
        choice("isolation", "Isolation", ISOLATIONS),
        choice("follow", "Follow", ("0", "1")),
        h.button(type="submit")["Search"],
    ]


def rows(some: Sequence[Shown]) -> str:
    """Return rows of the table, for one event."""
    return str(h.fragment[[_row(each) for each in some]])


def _row(row: Shown) -> h.Element:
    return h.tr[
        h.td(".number")[str(row.partition)],
        h.td(".number")[str(row.offset)],
        h.td[row.timestamp],
        h.td[_part(row.key)],
        h.td[
            _part(row.value),
            [h.em(".unknown")[f"cut: {each}"] for each in row.cut],
            [h.div(".schema")[each] for each in row.schemas],
        ],
        h.td[[h.div[f"{name}: ", _part(value)] for name, value in row.headers]],
    ]


def _part(text: str | None) -> h.Node:
    return h.em(".unknown")["null"] if text is None else h.pre[text]


def event(name: str, text: str) -> bytes:
    """Return a server-sent event."""
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n".encode(errors="replace")


def refused(why: str) -> bytes:
    """Return the events of a search that does not begin: a browser shows no other answer where it asks for events."""
    return event("progress", str(h.span(".problem")[why])) + event("end", "")


def progress(state: Progress, *, follows: bool) -> str:
    """Return how far the search is, for one event."""
    if state.total == NOT_BEGUN and not state.end:
        return str(h.span["Searching…"])
    begun = f"followed {state.searched:,}" if follows else f"searched {state.searched:,} of {state.total:,}"
    dropped = f", {state.dropped:,} dropped because they came too fast" if state.dropped else ""
    text = f"{begun}, {state.found:,} found{dropped}{f'; {state.end}' if state.end else ''}"
    return str(h.span(".problem" if state.is_failed else "")[text])
