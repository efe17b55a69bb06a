"""The query for messages, what matches it, and how a message is shown or exported."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from barnabas_console.model.inputs import INT64_MAX, Fields, InvalidInput, whole_number

QUERY_FIELDS: Final = (
    "partition",
    "from",
    "until",
    "limit",
    "lookup",
    "key",
    "value",
    "header",
    "format",
    "isolation",
    "follow",
    "download",
)
FORMATS: Final = ("auto", "text", "json", "hex")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
DOWNLOADS: Final = ("", "jsonl", "csv")
LIMIT_MAX: Final = 1_000
LIMIT_DEFAULT: Final = 500
EXPORT_MAX: Final = 100_000
BACK_DEFAULT: Final = -50
PARTITION_MAX: Final = (1 << 31) - 1
SHOWN_CHARACTERS_MAX: Final = 4_096
HEADERS_MAX: Final = 50
NAME_LENGTH_MAX: Final = 256
"""The most headers of a message that are shown, and the most characters of their names."""
PARSED_BYTES_MAX: Final = 1 << 20
"""The largest value that is parsed as JSON; parsing more would keep other visitors waiting."""
EXPORTED_BYTES_MAX: Final = 1 << 20
MASK: Final = "•••"
BEGINNINGS: Final = (
    "start, end, an offset, a negative number of records before the end, or a time such as 2026-11-29T06:00:00Z"
)
NOT_BEGUN: Final = -1
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers", "schemas")


class Message(NamedTuple):
    """A record as it is in the log; key and value are JSON where `schemas` says that they had a schema."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    schemas: Sequence[str] = ()


class Shown(NamedTuple):
    """A message as text; `cut` names the parts that are cut, with their sizes.

    `schemas` names the schemas of key and value, or says why they are shown as bytes.
    """

    partition: int
    offset: int
    timestamp: str
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str | None]]
    cut: Sequence[str] = ()
    schemas: Sequence[str] = ()


class Progress(NamedTuple):
    """The state of a search; `total` is the number of offsets to search, and `end` says why it has ended.

    Before brokers have said where the logs end, `total` is NOT_BEGUN.
    """

    searched: int = 0
    total: int = NOT_BEGUN
    found: int = 0
    dropped: int = 0
    end: str = ""
    is_failed: bool = False


class MessageQuery(NamedTuple):
    """The messages that a visitor asks for. All of it is in the address."""

    partition: int | None
    begin: str
    """The words `start` or `end`, a number, or a time in ms as `@` and a number."""
    until_ms: int | None
    limit: int
    lookup: str
    """A key whose partition is computed as producers do; only its messages match."""
    key: str
    value: str
    header: str
    format: str
    isolation: str
    follow: bool
    download: str

    @property
    def has_filter(self) -> bool:
        """True if some messages may not match."""
        return bool(self.lookup or self.key or self.value or self.header or self.until_ms is not None)


def message_query(given: Mapping[str, str]) -> MessageQuery:
    """Return the query of an address. Raises InvalidInput."""
    fields = Fields(given, QUERY_FIELDS)
    download = fields.one_of("download", DOWNLOADS, "")
    follow = fields.flag("follow")
    if follow and download:
        raise InvalidInput("follow", "1", "0 with download, because a file has an end")
    most = EXPORT_MAX if download else LIMIT_MAX
    until = fields.text("until")
    return MessageQuery(
        partition=fields.number("partition", 0, PARTITION_MAX),
        begin=_beginning(fields.text("from") or str(BACK_DEFAULT)),
        until_ms=time_ms("until", until) if until else None,
        limit=fields.number("limit", 1, most, most if download else LIMIT_DEFAULT) or 1,
        lookup=fields.text("lookup"),
        key=fields.text("key"),
        value=fields.text("value"),
        header=fields.text("header"),
        format=fields.one_of("format", FORMATS, FORMATS[0]),
        isolation=fields.one_of("isolation", ISOLATIONS, ISOLATIONS[0]),
        follow=follow,
        download=download,
    )


def _beginning(text: str) -> str:
    if text in ("start", "end"):
        return text
    if text.removeprefix("-").isdigit():
        return str(whole_number("from", text, -EXPORT_MAX, INT64_MAX))
    try:
        return f"@{time_ms('from', text)}"
    except InvalidInput as error:
        raise InvalidInput("from", text, BEGINNINGS) from error


def time_ms(field: str, text: str) -> int:
    """Return a time in ms since the epoch. A time without a zone is in UTC. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(field, text, "a time such as 2026-11-29T06:00:00Z") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class Masking(NamedTuple):
    """The fields of JSON keys and messages whose values nobody sees."""

    fields: frozenset[str]

    def masked(self, value: bytes | None) -> bytes | None:
        """Return a key or a value without the values of masked fields, at any depth.

        A message that is too large to be parsed is left out, because it might have such a field. One that is not JSON
        has no fields, and is returned as it is.
        """
        if not self.fields or value is None or not any(each.encode() in value for each in self._spelled):
            return value
        if len(value) > PARSED_BYTES_MAX:
            return f"{MASK} ({len(value)} bytes, more than {PARSED_BYTES_MAX} are not shown with masking)".encode()
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return json.dumps(self._without(parsed), ensure_ascii=False).encode(errors="replace")

    @property
    def _spelled(self) -> Iterable[str]:
        """Return what a message with such a field has in any case: its name, or an escape in which it may hide."""
        return (*self.fields, "\\u")

    def _without(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: MASK if name in self.fields else self._without(each) for name, each in value.items()}
        return [self._without(each) for each in value] if isinstance(value, list) else value


def may_match(message: Message, query: MessageQuery) -> bool:
    """True if a message, as it is in the log, has the time and the key that are asked for."""
    if query.until_ms is not None and message.timestamp_ms >= query.until_ms:
        return False
    return not query.lookup or message.key == query.lookup.encode()


def matches(message: Message, query: MessageQuery) -> bool:
    """True if a message, which is masked already, has the content that is asked for."""
    if query.header and not any(_is_in(query.header, f"{name}=", value) for name, value in message.headers):
        return False
    return _is_in(query.key, "", message.key) and _is_in(query.value, "", message.value)


def _is_in(wanted: str, before: str, value: bytes | None) -> bool:
    return not wanted or wanted.encode() in before.encode() + (value or b"")


def shown(message: Message, form: str, characters_max: int = SHOWN_CHARACTERS_MAX) -> Shown:
    """Return a message as text, whose parts have at most `characters_max` characters."""
    cut: list[str] = []

    def part(name: str, value: bytes | None) -> str | None:
        if value is None:
            return None
        text = text_of(value[: 4 * characters_max], form, is_whole=len(value) <= 4 * characters_max)
        if len(text) > characters_max or len(value) > 4 * characters_max:
            cut.append(f"{name}: {len(value):,} bytes")
        return text[:characters_max]

    return Shown(
        partition=message.partition,
        offset=message.offset,
        timestamp=time_text(message.timestamp_ms),
        key=part("key", message.key),
        value=part("value", message.value),
        headers=tuple((name, part(f"header {name}", value)) for name, value in _named(message.headers[:HEADERS_MAX])),
        cut=tuple(cut),
        schemas=tuple(message.schemas),
    )


def text_of(value: bytes, form: str, *, is_whole: bool = True) -> str:
    """Return bytes as text: JSON with indents, text with marks for what cannot be shown, or hex.

    The format `auto` is JSON if the bytes are, else text if they are, else hex.
    """
    text = _json_of(value) if form in ("auto", "json") and is_whole and value[:1] in (b"{", b"[") else None
    if text is None and (form == "hex" or (form == "auto" and not _is_text(value, is_whole=is_whole))):
        return value.hex(" ")
    text = value.decode(errors="replace") if text is None else text
    return _printable(text)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def _named(headers: Sequence[tuple[str, bytes | None]]) -> Iterator[tuple[str, bytes | None]]:
    """Yield headers with names that can be shown."""
    for name, value in headers:
        yield _printable(name)[:NAME_LENGTH_MAX], value


def _json_of(value: bytes) -> str | None:
    try:
        return json.dumps(json.loads(value), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return None


def _is_text(value: bytes, *, is_whole: bool) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(value) - 3:  # The last character may be cut.
            return False
        text = value[: error.start].decode()
    return all(each.isprintable() or each in "\r\n\t" for each in text)


def time_text(timestamp_ms: int) -> str:
    """Return a time as in ISO 8601, in UTC; a number of ms that is no date stays one."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exported(message: Message, query: MessageQuery) -> bytes:
    """Return a message as a line of a file; long parts are cut, and the line says so."""
    row = shown(message, "text" if query.format == "auto" else query.format, EXPORTED_BYTES_MAX)
    if query.download == "jsonl":
        line = {**row._asdict(), "headers": [list(each) for each in row.headers]}
        return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
    schemas = "; ".join(row.schemas)
    return csv_line([row.partition, row.offset, row.timestamp, row.key, row.value, json.dumps(row.headers), schemas])


def csv_line(values: Sequence[object]) -> bytes:
    """Return a line of CSV. A text that a spreadsheet would compute gets an apostrophe in front."""
    out = io.StringIO()
    csv.writer(out).writerow(map(_harmless, values))
    return out.getvalue().encode(errors="replace")


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULAS else value
