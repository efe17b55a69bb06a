"""The definition of a config: its type, default, valid values and meaning, and the parsing of its text.

The tables are in `broker_definitions` and `topic_definitions`. Validation, DescribeConfigs and the documentation all
use these tables, so they always agree.

Files are parsed exactly in Java's properties format, with comments, continued lines, escapes and three separators. The
rules are those of `java.util.Properties.load`. A comment line cannot be continued. A key ends at the first unescaped
`=`, `:` or blank. If a key occurs twice, its last value counts. The package javaproperties treats empty continued lines
differently from Java.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from itertools import islice
from typing import Final, NamedTuple, Protocol

import msgspec

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Property(NamedTuple):
    """A value and the number of the line on which it begins, counted from 1; None if it is from no file."""

    value: str
    line: int | None


class MalformedProperties(ValueError):
    """The error that a text is not in the properties format; the message has the line number."""


def parse_properties(text: str) -> dict[str, Property]:
    """Return all properties by key.

    Raise MalformedProperties for a Unicode escape without four hexadecimal digits; any other text is valid.
    """
    properties = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern for keys must match an empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "the pattern for separators must match an empty text"
        value = _unescape(line[separator.end() :], number)
        properties[_unescape(key.group(), number)] = Property(value, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the logical lines of a text, as Java's Properties reads them.

    Lines that end with a backslash are joined with the next line. Blanks at the start, comments and blank lines are
    left out, even after a line that is only a backslash. If the last line is only a backslash, an empty line is
    yielded, unless the text ends with \r\n.
    """
    naturals = _LINE_END.split(text)
    last = len(naturals) - (0 if text.endswith("\r\n") else 1 if naturals[-1] else 2)
    pending, begun = "", 0
    for index, natural in enumerate(naturals):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        begun = begun if pending else index + 1
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continued else line
        if not continued or index >= last:
            yield begun, pending
            pending = ""
    if pending:
        yield begun, pending


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped[:1] != "u":
            return _ESCAPES.get(escaped, escaped)
        if not re.fullmatch("u[0-9a-fA-F]{4}", escaped):
            raise MalformedProperties(f"line {line}: the escape \\{escaped} must be \\u and four hexadecimal digits")
        return chr(int(escaped[1:], 16))

    joined = _ESCAPED.sub(replace, text)
    # Two escapes may be the UTF-16 surrogates of one character above U+FFFF.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


ALIKE: Final = 0.75
"""The similarity from which one name is probably a typo of another."""

_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
_SECOND: Final = 1_000
_MILLISECONDS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "h": 3_600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}
_BYTES: Final[Mapping[str, int]] = {
    "B": 1,
    **{f"{letter}{tail}": 1_000**power for power, letter in enumerate("kMGT", 1) for tail in ("", "B")},
    **{f"K{tail}": 1_000 for tail in ("", "B")},
    **{f"{letter}i{tail}": 1_024**power for power, letter in enumerate("KMGT", 1) for tail in ("", "B")},
}
_UNITS: Final[Mapping[str, tuple[Mapping[str, int], int]]] = {
    ".ms": (_MILLISECONDS, 1),
    ".seconds": (_MILLISECONDS, _SECOND),
    ".minutes": (_MILLISECONDS, 60 * _SECOND),
    ".hours": (_MILLISECONDS, 3_600 * _SECOND),
    ".bytes": (_BYTES, 1),
}
"""A map from the unit suffix of a config's name, such as `.ms`, to a pair.

The first item has the units that users may write by mistake, and the second item is the unit of the config.
"""


def did_you_mean(name: str, known: Mapping[str, object], aliases: Mapping[str, str]) -> str:
    """Return `; did you mean NAME?` if `name` is in `aliases` or similar to a name in `known`; else an empty text."""
    from difflib import get_close_matches  # It takes 0.2 MB, and most brokers have no misspelt setting.

    near = [aliases[name]] if name in aliases else get_close_matches(name, known, n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def written_out(name: str, text: str) -> int | None:
    """Return a value such as `7d` or `10Mi` as a number in the setting's unit.

    Return None if the value has no known unit, or if the result is not a whole number.
    """
    units, unit = next((found for end, found in _UNITS.items() if name.endswith(end)), ({}, 1))
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is None or amount[2] not in units:
        return None
    number = float(amount[1]) * units[amount[2]] / unit
    return int(number) if number.is_integer() else None


INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
NAMED_MAX: Final = 10
"""The maximum number of configs that one error names, because a request may have thousands of wrong ones."""
SHOWN_CHARS_MAX: Final = 200
"""The maximum number of characters of a value that an error shows."""

Value = bool | int | float | str | tuple[str, ...] | None
"""The value of a setting; None if it is not set and has no default."""


class ConfigType(IntEnum):
    """The types of configs, with the numbers of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Dynamic(Enum):
    """The scope in which a broker config can change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigProblem(NamedTuple):
    """An invalid setting: its name, its text, what is allowed, and its line in the file, or None without a file."""

    name: str
    value: str | None
    allowed: str
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        value = "" if self.value is None else f"={_shortened(self.value)}"
        return f"{place}{self.name}{value}: {self.allowed}"


def first_names(names: Collection[str]) -> str:
    """Return the first NAMED_MAX names, separated by commas, and the number of the others."""
    more = [f"and {len(names) - NAMED_MAX} others"] * (len(names) > NAMED_MAX)
    return ", ".join([*islice(names, NAMED_MAX), *more])


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


class InvalidConfig(Exception):
    """The error that has all invalid settings, not only the first; its message names the first NAMED_MAX of them."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        more = ["and others"] * (len(self.problems) > NAMED_MAX)
        super().__init__("; ".join([*map(str, self.problems[:NAMED_MAX]), *more]))


class Check(Protocol):
    """A check of a config value that has already been parsed to the right type."""

    @property
    def allowed(self) -> str:
        """The valid values, in words that follow "must be"."""
        ...

    def accepts(self, value: Value) -> bool:
        """True if `value`, which has the right type, is valid."""
        ...


class Range(msgspec.Struct, frozen=True):
    """A check for numbers from `low` to `high`, both inclusive, or equal to a number in `also`."""

    low: float
    high: float | None = None
    also: tuple[int, ...] = ()

    @property
    def allowed(self) -> str:
        """The valid values, in words that follow "must be"."""
        span = f"at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return " or ".join([span, *map(str, self.also)])

    def accepts(self, value: Value) -> bool:
        """True if the value is valid."""
        number = value if isinstance(value, int | float) else 0
        return (self.low <= number and (self.high is None or number <= self.high)) or number in self.also


class OneOf(msgspec.Struct, frozen=True):
    """A check that a text, or each entry of a list, is one of the allowed words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The valid values, in words that follow "must be"."""
        return f"one of {', '.join(self.words)}"

    def accepts(self, value: Value) -> bool:
        """True if the value is valid."""
        entries = value if isinstance(value, tuple) else (value,)
        return all(entry in self.words for entry in entries)


class Only(msgspec.Struct, frozen=True):
    """A check that allows a single value; `why` names the missing feature that other values need."""

    value: Value
    why: str

    @property
    def allowed(self) -> str:
        """The valid values, in words that follow "must be"."""
        return f"{format_value(self.value)} ({self.why})"

    def accepts(self, value: Value) -> bool:
        """True if the value is valid."""
        return value == self.value


class Pattern(msgspec.Struct, frozen=True):
    """A check that a text, or each entry of a list, fully matches a regular expression, which `meaning` explains."""

    regex: str
    meaning: str

    @property
    def allowed(self) -> str:
        """The valid values, in words that follow "must be"."""
        return self.meaning

    def accepts(self, value: Value) -> bool:
        """True if the value is valid."""
        entries = value if isinstance(value, tuple) else (value,)
        return all(isinstance(entry, str) and re.fullmatch(self.regex, entry) for entry in entries)


class Synonym(NamedTuple):
    """A setting whose value, times `factor`, is the default of another, such as log.roll.hours for log.roll.ms."""

    name: str
    factor: int = 1


class ConfigDefinition(msgspec.Struct, frozen=True):
    """The definition of a setting; a setting without a value takes that of its first synonym that has a value."""

    name: str
    type: ConfigType
    default: Value
    check: Check | None
    documentation: str
    dynamic: Dynamic = Dynamic.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()

    @property
    def sensitive(self) -> bool:
        """True if the value must never be shown."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def allowed(self) -> str:
        """The valid values in words, such as "must be an integer, at least 1"."""
        kind = _TYPE_WORDS[self.type]
        return f"must be {kind}" if self.check is None else f"must be {kind}, {self.check.allowed}"


_TYPE_WORDS: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "an integer",
    ConfigType.SHORT: "an integer",
    ConfigType.LONG: "an integer",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list separated by commas",
    ConfigType.CLASS: "a class name",
    ConfigType.PASSWORD: "text",
}
_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_BOOLEANS: Final = {"true": True, "false": False}


def _parse_integer(text: str, kind: ConfigType) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    number = int(text)
    limit = 1 << (_BITS[kind] - 1)
    if not -limit <= number < limit:
        raise ValueError
    return number


def _parse_boolean(text: str, _kind: ConfigType) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text.lower()]


def _parse_double(text: str, _kind: ConfigType) -> float:
    number = float(text)
    if number != number or "_" in text:
        raise ValueError
    return number


def _parse_list(text: str, _kind: ConfigType) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",")) if text else ()


def _parse_text(text: str, _kind: ConfigType) -> str:
    return text


_PARSERS: Final[Mapping[ConfigType, Callable[[str, ConfigType], Value]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.INT: _parse_integer,
    ConfigType.SHORT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.STRING: _parse_text,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}


def parse_value(definition: ConfigDefinition, text: str) -> Value:
    """Parse the text of a config value; blanks around the text are ignored, as in Kafka.

    Raise InvalidConfig if the value is invalid; the message says which values are valid.
    """
    try:
        value = _PARSERS[definition.type](text.strip(), definition.type)
        valid = definition.check is None or definition.check.accepts(value)
    except ValueError:
        valid = False
    if not valid:
        shown = "(hidden)" if definition.sensitive else text
        raise InvalidConfig([ConfigProblem(definition.name, shown, definition.allowed + _in_digits(definition, text))])
    return value


def _in_digits(definition: ConfigDefinition, text: str) -> str:
    """Return a hint for a number with a unit, such as `; write 7d as 604800000`.

    Return "" for any other text, and for a number that the setting does not allow.
    """
    number = written_out(definition.name, text) if definition.type in _BITS else None
    if number is None or not -(limit := 1 << (_BITS[definition.type] - 1)) <= number < limit:
        return ""
    is_taken = definition.check is None or definition.check.accepts(number)
    return f"; write {text.strip()} as {number}" if is_taken else ""


def format_value(value: Value) -> str | None:
    """Return a value as Kafka's tools show it; None if nothing is set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def table(*definitions: ConfigDefinition) -> Mapping[str, ConfigDefinition]:
    """Return the definitions by name. Raises AssertionError if two definitions have the same name."""
    by_name = {definition.name: definition for definition in definitions}
    assert len(by_name) == len(definitions), "two settings have the same name"
    return by_name
