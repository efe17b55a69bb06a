"""The input of visitors: each value is parsed, or refused by the name of its field, the value and what is allowed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_console.model.snapshot import Unknown

VALUE_LENGTH_MAX: Final = 2_000
SHOWN_LENGTH_MAX: Final = 80
INT64_MAX: Final = (1 << 63) - 1
PAGE_SIZES: Final = (50, 200, 1_000)
Item = TypeVar("Item")


class InvalidInput(Exception):
    """The error that a field of an address or a form is invalid; the message names field, value and what is allowed."""

    def __init__(self, field: str, value: str, allowed: str) -> None:
        shown = value if len(value) <= SHOWN_LENGTH_MAX else f"{value[:SHOWN_LENGTH_MAX]}… ({len(value)} characters)"
        super().__init__(f"{field}={shown!r}; allowed: {allowed}")
        self.field: Final = field


class Fields:
    """The fields of an address or a form; each is text of at most VALUE_LENGTH_MAX characters, and known by name."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str], length_max: int = VALUE_LENGTH_MAX) -> None:
        """Raise InvalidInput for a field that is unknown or too long."""
        for name, value in given.items():
            if name not in known:
                raise InvalidInput(name, value, f"only the fields {', '.join(known)}")
            if len(value) > length_max:
                raise InvalidInput(name, value, f"at most {length_max} characters")
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        """Return a field as it is; the default if it is missing."""
        return self._given.get(name, default)

    def needed(self, name: str, allowed: str) -> str:
        """Return a field that must not be empty."""
        value = self._given.get(name, "")
        if not value:
            raise InvalidInput(name, value, allowed)
        return value

    def one_of(self, name: str, allowed: Sequence[str], default: str) -> str:
        """Return one of the allowed values. An empty value means the default."""
        value = self._given.get(name) or default
        if value not in allowed:
            raise InvalidInput(name, value, ", ".join(allowed))
        return value

    def flag(self, name: str) -> bool:
        """Return True for 1, and False for 0 or an empty value."""
        return self.one_of(name, ("0", "1"), "0") == "1"

    def number(self, name: str, least: int, most: int, default: int | None = None) -> int | None:
        """Return a whole number; the default if the field is missing or empty."""
        value = self._given.get(name, "")
        return whole_number(name, value, least, most) if value else default


def whole_number(name: str, value: str, least: int, most: int) -> int:
    """Return a whole number in this range. Raises InvalidInput."""
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19 and least <= int(value) <= most:
        return int(value)
    raise InvalidInput(name, value, f"a whole number from {least} to {most}")


class ListQuery(NamedTuple):
    """The part of a list that a visitor asks for: search, order, page; it is the query of the address."""

    search: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    size: int = PAGE_SIZES[0]
    all: bool = False
    """True if the list has hidden names, too."""


LIST_FIELDS: Final = ("search", "sort", "desc", "page", "size", "all")


def list_query(given: Mapping[str, str], sorts: Sequence[str], descending: Sequence[str] = ()) -> ListQuery:
    """Return the query of a list. The first of `sorts` is the default; those in `descending` begin with the largest."""
    fields = Fields(given, LIST_FIELDS)
    sort = fields.one_of("sort", sorts, sorts[0])
    size = fields.one_of("size", list(map(str, PAGE_SIZES)), str(PAGE_SIZES[0]))
    return ListQuery(
        search=fields.text("search").strip(),
        sort=sort,
        descending=fields.one_of("desc", ("0", "1"), "1" if sort in descending else "0") == "1",
        page=fields.number("page", 1, 1_000_000, 1) or 1,
        size=int(size),
        all=fields.flag("all"),
    )


class Part(NamedTuple):
    """A page of a list, with the number of rows that match the search, and the number of all rows."""

    rows: Sequence[Any]
    matched: int
    whole: int
    pages: int


def part_of(rows: Sequence[Item], query: ListQuery, name: Callable[[Item], str]) -> Part:
    """Return the rows of the asked page, searched by name and sorted by the attribute `query.sort`.

    Figures that are not known come last in either order. A page after the last one is the last one.
    """
    wanted = query.search.casefold()
    found = [each for each in rows if wanted in name(each).casefold()]
    known = [each for each in found if not _is_word(each, query.sort)]
    known.sort(key=lambda each: _order(getattr(each, query.sort)), reverse=query.descending)
    ordered = known + [each for each in found if _is_word(each, query.sort)]
    pages = max(1, -(-len(ordered) // query.size))
    begin = (min(query.page, pages) - 1) * query.size
    return Part(ordered[begin : begin + query.size], len(found), len(rows), pages)


def _is_word(row: object, sort: str) -> bool:
    return isinstance(getattr(row, sort), Unknown)


def _order(value: object) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, str(value).casefold())
