"""The definition of a config: its type, default, valid values and meaning, and the parsing of its text.

The tables are in `broker_definitions` and `topic_definitions`. Validation, DescribeConfigs and the documentation all
use these tables, so they always agree.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import islice
from typing import Final, NamedTuple, Protocol

from barnabas_core.config.near_misses import written_out

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


@dataclass(frozen=True, slots=True)
class Range:
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


@dataclass(frozen=True, slots=True)
class OneOf:
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


@dataclass(frozen=True, slots=True)
class Only:
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


@dataclass(frozen=True, slots=True)
class Pattern:
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


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
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
