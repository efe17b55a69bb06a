"""The frame of all pages, and the parts that they share: links, figures, tables, forms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import htpy as h

from barnabas_console.model.inputs import PAGE_SIZES, ListQuery, Part
from barnabas_console.model.snapshot import Unknown

HTMX: Final = (
    '{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,'
    '"historyCacheSize":0,"refreshOnHistoryMiss":true}'
)
"""The settings of htmx: no code from pages, no other site, and nothing of a page stays in the browser."""
PAGES: Final = (
    ("Cluster", "/"),
    ("Topics", "/topics"),
    ("Groups", "/groups"),
    ("Transactions", "/transactions"),
    ("Users", "/users"),
)
MAINTENANCE: Final = ("Maintenance", "/maintenance")
TOKEN: Final = ("Kubernetes token", "/kubernetes")
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
ROWS_MAX: Final = 1_000
"""The largest number of rows of a table without pages; a line says how many more there are."""


class Frame(NamedTuple):
    """The part of a page's frame that depends on the visitor and the cluster."""

    root: str
    """The path below which the files of all pages are; at it is the list of clusters, if there is one."""
    prefix: str
    address: str
    """The path and query of this page, without the prefix."""
    name: str = ""
    """The name of the cluster in its addresses; empty if the console shows only one."""
    who: str = ""
    csrf: str = ""
    """The token of forms; empty without a session."""
    may_log_out: bool = False
    may_write: bool = False
    has_runs: bool = False
    """True if there are pages of MaintenanceJobs."""
    asks_token: bool = False
    """True if the visitor's token for the Kubernetes API counts there."""
    cluster: str = ""
    age_s: float | None = None
    failures: Sequence[str] = ()


def link(frame: Frame, path: str, **query: object) -> str:
    """Return the address of a page, with the fields of its query that are not empty."""
    fields = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{frame.prefix}{path}{'?' + urlencode(fields) if fields else ''}"


def path_of(*parts: object) -> str:
    """Return a path whose parts may have any characters, such as the name of a group with slashes."""
    return "/" + "/".join(quote(str(each), safe="") for each in parts)


def whole(frame: Frame, title: str, *content: h.Node) -> h.Element:
    """Return a page with its frame."""
    return h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="htmx-config", content=HTMX),
            h.title[f"{title} · Barnabas console"],
            h.link(rel="stylesheet", href=f"{frame.root}/static/console.css"),
            h.link(rel="icon", href=f"{frame.root}/static/icon.svg"),
            [
                h.script(src=f"{frame.root}/static/{name}", defer=True)
                for name in ("htmx.min.js", "sse.min.js", "console.js")
            ],
        ],
        h.body[
            h.a(".skip", href="#main")["Skip to the content"],
            _header(frame),
            h.main("#main")[_notes(frame), h.h1[title], *content],
        ],
    ]


def _header(frame: Frame) -> h.Node:
    here = frame.address.split("?")[0]
    return h.header[
        h.strong["Barnabas"],
        frame.name and h.span[h.a(href=f"{frame.root}/")["Clusters"], f" / {frame.name}"],
        frame.who
        and h.nav(aria_label="Pages")[
            [
                h.a(href=link(frame, path), aria_current="page" if _is_in(here, path) else None)[name]
                for name, path in (
                    *PAGES,
                    *([MAINTENANCE] if frame.has_runs else []),
                    *([TOKEN] if frame.asks_token else []),
                )
            ]
        ],
        frame.who and h.span(".who")[f"as {frame.who}", _age(frame)],
        frame.may_log_out
        and h.form(method="post", action=link(frame, "/logout"))[
            h.input(type="hidden", name="csrf", value=frame.csrf), h.button(type="submit")["Log out"]
        ],
    ]


def _is_in(here: str, path: str) -> bool:
    return here == path or (path != "/" and here.startswith(f"{path}/"))


def _age(frame: Frame) -> h.Node:
    return (
        frame.age_s is not None
        and h.span("#age", title="how old the figures are", data_age=f"{frame.age_s:.0f}")[
            f" · {frame.age_s:.0f} s ago"
        ]
    )


def _notes(frame: Frame) -> h.Node:
    """Return what is above each page: why it is not refreshed, empty at first, and what its figures lack."""
    return [
        h.p("#trouble.problem", role="alert"),
        h.div("#notes")[
            frame.failures
            and h.details(".trouble")[
                h.summary[f"{len(frame.failures)} requests to the brokers failed, so some figures are not known"],
                h.ul[[h.li[each] for each in frame.failures[:20]]],
            ]
        ],
    ]


def figure(value: int | Unknown) -> h.Node:
    """Return a number with separators, or the word for why it is not known."""
    return h.em(".unknown")[str(value)] if isinstance(value, Unknown) else f"{value:,}"


def size(value: int | Unknown) -> h.Node:
    """Return a size in bytes with its unit, or the word for why it is not known."""
    if isinstance(value, Unknown):
        return figure(value)
    shown, unit = float(value), 0
    while shown >= 1024 and unit < len(UNITS) - 1:
        shown, unit = shown / 1024, unit + 1
    return f"{shown:.0f} {UNITS[unit]}" if unit == 0 else f"{shown:.1f} {UNITS[unit]}"


class Column(NamedTuple):
    """A column of a table; `sort` is the attribute by which it sorts, empty if it does not."""

    title: str
    cell: Callable[[Any], h.Node]
    sort: str = ""
    is_number: bool = False


def linked(frame: Frame, folder: str, title: str, name: str, *, sorts: bool = False) -> Column:
    """Return a column of links to the pages of topics or others, by the attribute that has their names."""

    def cell(row: object) -> h.Node:
        shown = str(getattr(row, name))
        return h.a(href=link(frame, path_of(folder, shown)))[shown]

    return Column(title, cell, name if sorts else "")


def table(columns: Sequence[Column], rows: Iterable[object], head: Callable[[Column], h.Node] | None = None) -> h.Node:
    """Return a table; `head` returns the content of a column's head, by default its title."""
    return h.div(".wide", tabindex="0")[
        h.table[
            h.thead[
                h.tr[
                    [
                        h.th(".number" if each.is_number else "", scope="col")[head(each) if head else each.title]
                        for each in columns
                    ]
                ]
            ],
            h.tbody[
                [h.tr[[h.td(".number" if each.is_number else "")[each.cell(row)] for each in columns]] for row in rows]
            ],
        ]
    ]


def cut(rows: Sequence[object], rows_max: int = ROWS_MAX) -> h.Node:
    """Return a line that says how many rows are left out, if there are some."""
    more = len(rows) - rows_max
    return more > 0 and h.p(".notice")[f"{more:,} more rows are left out; the JSON of this address has all."]


def list_page(
    frame: Frame, path: str, query: ListQuery, part: Part, columns: Sequence[Column], **others: str
) -> h.Node:
    """Return a list with its search, its order and its pages, which are all in the address, as are `others`."""

    def changed(**values: object) -> str:
        fields = {"search": query.search, "sort": query.sort, "desc": int(query.descending), "size": query.size}
        return link(frame, path, **{**fields, "all": "1" if query.all else "", **others, **values})

    def head(column: Column) -> h.Node:
        if not column.sort:
            return column.title
        turned = not query.descending if column.sort == query.sort else column.is_number
        arrow = (" ↓" if query.descending else " ↑") if column.sort == query.sort else ""
        return h.a(href=changed(sort=column.sort, desc=int(turned)))[column.title, arrow]

    return [
        _search(frame, path, query, others),
        live(
            frame,
            h.p(".count")[f"{part.matched:,} of {part.whole:,}"],
            table(columns, part.rows, head),
            h.nav(aria_label="Pages of the list")[
                query.page > 1 and h.a(href=changed(page=min(query.page, part.pages) - 1))["← before"],
                h.span[f" page {min(query.page, part.pages)} of {part.pages} "],
                query.page < part.pages and h.a(href=changed(page=query.page + 1))["next →"],
            ],
        ),
    ]


def _search(frame: Frame, path: str, query: ListQuery, others: Mapping[str, str]) -> h.Node:
    return h.form(".search", method="get", action=link(frame, path), role="search")[
        h.label[
            "Search ",
            h.input(
                type="search",
                name="search",
                value=query.search,
                maxlength="249",
                hx_get=link(frame, path),
                hx_trigger="input changed delay:300ms",
                hx_target="#list",
                hx_select="#list",
                hx_select_oob="#age,#notes",
                hx_swap="outerHTML",
                hx_push_url="true",
                hx_include="closest form",
            ),
        ],
        [h.label[f" {name} ", h.input(name=name, value=value, maxlength="249")] for name, value in others.items()],
        h.input(type="hidden", name="sort", value=query.sort),
        h.input(type="hidden", name="desc", value=int(query.descending)),
        h.label[
            " rows ",
            h.select(name="size")[
                [h.option(value=each, selected=each == query.size)[str(each)] for each in PAGE_SIZES]
            ],
        ],
        h.label[h.input(type="checkbox", name="all", value="1", checked=query.all), " internal, too"],
        h.button(type="submit")["Show"],
    ]


def form(frame: Frame, path: str, button: str, *content: h.Node, hidden: Mapping[str, str] | None = None) -> h.Node:
    """Return a form that posts, with the token of the session."""
    return h.form(".act", method="post", action=link(frame, path))[
        h.input(type="hidden", name="csrf", value=frame.csrf),
        [h.input(type="hidden", name=name, value=value) for name, value in (hidden or {}).items()],
        *content,
        h.button(type="submit")[button],
    ]


def live(frame: Frame, *content: h.Node) -> h.Element:
    """Return the part of a page that is refreshed while the page is open, with the age of its figures."""
    return h.div("#list", hx_get=f"{frame.prefix}{frame.address}", hx_trigger="refresh from:body", hx_select="#list",
                 hx_select_oob="#age,#notes", hx_target="this", hx_swap="outerHTML")[content]  # fmt: skip


def facts(rows: Iterable[tuple[str, h.Node]]) -> h.Node:
    """Return a list of names and values."""
    return h.dl[[[h.dt[name], h.dd[value]] for name, value in rows]]
