"""Options of jobs: parse `NAME=VALUE` words into a typed Struct.

Errors name the option, its value and what is allowed.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import inspect

from barnabas_jobs.planning.errors import BadOption

Options = TypeVar("Options", bound=msgspec.Struct)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for the values of two options, as data for the operator; `allowed` says which values are permitted.

    `ordered`: if both options are given, `option` must be less than `other`. `needs`: if `option` is given, `other`
    must be true. `excludes`: at most one of the two options may be true.
    """

    kind: Literal["ordered", "needs", "excludes"]
    option: str
    other: str
    allowed: str

    def problem(self, options: Any) -> str | None:
        """Return how the options break the rule, or None if they keep it."""
        one, other = getattr(options, self.option), getattr(options, self.other)
        broken = {
            "ordered": one is not None and other is not None and one >= other,
            "needs": one is not None and other is not True,
            "excludes": one is True and other is True,
        }
        if not broken[self.kind]:
            return None
        return f"{self.option}={_option_text(one)} and {self.other}={_option_text(other)}; allowed: {self.allowed}"


def range_rule(of: str) -> Rule:
    """Return the rule that `to_NAME` is after `from_NAME`."""
    return Rule(kind="ordered", option=f"from_{of}", other=f"to_{of}", allowed=f"from_{of} < to_{of}")


def _option_text(value: Any) -> str:
    """Return the value of an option as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a job; creating them checks every value and every rule, and raises BadOption if one is broken."""

    RULES: ClassVar[Sequence[Rule]] = ()

    def __post_init__(self) -> None:
        """Convert each value to the type of its field, such as a time from a text, and check all rules."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            try:
                msgspec.structs.force_setattr(self, field.name, msgspec.convert(value, field.type))
            except msgspec.ValidationError:
                raise BadOption(f"{field.name}={value!r}; allowed: {allowed(field.type)}") from None
        for rule in self.RULES:
            if problem := rule.problem(self):
                raise BadOption(problem)


Bootstrap = Annotated[
    str, msgspec.Meta(pattern=r"^[^,:\s]+:[0-9]{1,5}(,[^,:\s]+:[0-9]{1,5})*$", description="HOST:PORT[,HOST:PORT...]")
]
TopicName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-zA-Z0-9._-]{1,249}$",
        description="a topic's name, 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'",
    ),
]
Folder = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?![a-zA-Z][a-zA-Z0-9+.-]*://).+",
        description="a folder of this machine, not a URL",
    ),
]
Location = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(s3a://[^/*?\[\]{}\\]+/|(?![a-zA-Z][a-zA-Z0-9+.-]*://)[^*?\[\]{}\\])[^*?\[\]{}\\]*$",
        description="a folder of this machine, or s3a://BUCKET/FOLDER, without the characters * ? [ ] { } \\",
    ),
]
"""A folder or S3 URL, without the characters that Spark takes for patterns."""
Time = Annotated[datetime, msgspec.Meta(tz=True, description="a time with its time zone, such as 2013-01-31T06:30:00Z")]
Count = Annotated[int, msgspec.Meta(ge=1)]


def since_1970_ms(moment: datetime) -> int:
    """Convert a time to ms since 1970, the unit of a record's timestamp."""
    return round(moment.timestamp() * 1000)


def in_bucket(location: object) -> bool:
    """True if the location is in S3."""
    return isinstance(location, str) and location.startswith("s3a://")


def parse(kind: type[Options], words: Sequence[str]) -> Options:
    """Parse arguments of the form `NAME=VALUE` into an instance of `kind`; commas separate the items of a list.

    Raises BadOption if an option is unknown, given twice or wrong, or if a required option is missing.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in fields:
            raise BadOption(f"--option {word}; allowed: NAME=VALUE, with NAME one of {', '.join(fields)}")
        if name in given:
            raise BadOption(f"--option {name}: the option is given twice; give each option once")
        given[name] = _value(name, value, fields[name].type)
    for name, field in fields.items():
        if field.required and name not in given:
            raise BadOption(f"--option {name}=...: the option is missing; allowed: {allowed(field.type)}")
    return kind(**given)


def _value(name: str, text: str, kind: Any) -> Any:
    raw = text.split(",") if isinstance(_described(kind), inspect.ListType) else text
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError:
        raise BadOption(f"--option {name}={text}; allowed: {allowed(kind)}") from None


def allowed(kind: Any) -> str:
    """Return the allowed values of a field, in words."""
    description = _description(inspect.type_info(kind))
    if description is not None:
        return description
    match described := _described(kind):
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case inspect.ListType(item_type=item):
            return f"a list with commas, in which each item is {_description(item) or _number(item)}"
        case _:
            return _number(described)


def _description(described: inspect.Type) -> str | None:
    """Return the `description` in the `msgspec.Meta` of a type, or None if there is none."""
    while isinstance(described, inspect.Metadata | inspect.UnionType):
        if isinstance(described, inspect.UnionType):
            described = described.types[0]
            continue
        description = (described.extra_json_schema or {}).get("description")
        if description:
            return str(description)
        described = described.type
    return None


def _number(described: inspect.Type) -> str:
    while isinstance(described, inspect.Metadata):
        described = described.type
    if isinstance(described, inspect.IntType):
        return "a whole number" if described.ge is None else f"a whole number, {described.ge} or more"
    return "text"


def _described(kind: Any) -> inspect.Type:
    """Return the type without annotations and `| None`."""
    described = inspect.type_info(kind)
    while isinstance(described, inspect.Metadata | inspect.UnionType):
        described = described.type if isinstance(described, inspect.Metadata) else described.types[0]
    return described
