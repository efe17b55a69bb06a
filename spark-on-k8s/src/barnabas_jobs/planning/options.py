"""The options and results of jobs: parse `NAME=VALUE` words into a typed Struct, and judge how a job ended.

Errors name the option, its value and what is allowed.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec

from barnabas_jobs.planning.errors import BadOption

Options = TypeVar("Options", bound=msgspec.Struct)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for the values of two options, as data for the operator; `allowed` says which values are permitted.

    `ordered`: if both options are given, `option` must be less than `other`. `needs`: if `option` is given, `other`
    must be true. `excludes`: at most one of the two options may be given, or be true. `bucket-needs`: if `option` is
    in a bucket, `other` must be given.
    """

    kind: Literal["ordered", "needs", "excludes", "bucket-needs"]
    option: str
    other: str
    allowed: str

    def problem(self, options: Any) -> str | None:
        """Return how the options break the rule, or None if they keep it."""
        one, other = getattr(options, self.option), getattr(options, self.other)
        match self.kind:
            case "ordered":
                is_broken = one is not None and other is not None and one >= other
            case "needs":
                is_broken = one is not None and other is not True
            case "excludes":
                is_broken = bool(one) and bool(other)
            case "bucket-needs":
                is_broken = in_bucket(one) and not other
        if not is_broken:
            return None
        shown = "nothing" if self.kind == "bucket-needs" else _option_text(other)
        return f"{self.option}={_option_text(one)} and {self.other}={shown}; allowed: {self.allowed}"


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
            _check_entries(field.name, field.type, value)
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
Catalog = Annotated[
    dict[str, str],
    msgspec.Meta(
        description="catalog.PROPERTY=VALUE, where PROPERTY is one of PyIceberg's catalogs, such as uri, warehouse or "
        "s3.endpoint; catalog.type must be sql, rest or glue",
        extra_json_schema={"pattern": r"^(type=(sql|rest|glue)|(?!type=)[a-zA-Z0-9._-]+=.+)$"},
    ),
]
"""The properties of the catalog that has an archive's tables. The pattern is for one property as `PROPERTY=VALUE`."""
Namespace = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-zA-Z0-9_]{1,63}(\.[a-zA-Z0-9_]{1,63}){0,3}$",
        description="a namespace of the catalog: names of letters, digits and '_', with dots between them",
    ),
]
RegistryAddress = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^https?://[^/@?#,\s]+(/[^@?#,\s]*)?$",
        description="the address of a schema registry without a user, http://HOST:PORT or https://HOST:PORT",
    ),
]
MessageType = Annotated[
    str, msgspec.Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)*$", description="PACKAGE.MESSAGE")
]
Time = Annotated[datetime, msgspec.Meta(tz=True, description="a time with its time zone, such as 2013-01-31T06:30:00Z")]
Count = Annotated[int, msgspec.Meta(ge=1)]


def since_1970_ms(moment: datetime) -> int:
    """Convert a time to ms since 1970, the unit of a record's timestamp."""
    return round(moment.timestamp() * 1000)


def in_bucket(location: object) -> bool:
    """True if the location is in S3."""
    return isinstance(location, str) and location.startswith("s3a://")


CATALOG_OF_BUCKET: Final = Rule(
    kind="bucket-needs",
    option="archive",
    other="catalog",
    allowed="s3a://BUCKET/FOLDER together with catalog.type and the other properties of a catalog, because only the "
    "archive in a folder has a catalog of its own",
)


class ArchiveOptions(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the jobs that write or read an archive.

    `archive` is where the tables of all topics are stored. `catalog` has the properties of the catalog that names the
    tables; without them, the catalog is a file in the folder `archive`.
    """

    RULES: ClassVar[Sequence[Rule]] = (CATALOG_OF_BUCKET,)

    topic: TopicName
    archive: Location
    catalog: Catalog = {}
    namespace: Namespace = "barnabas"


def parse(kind: type[Options], words: Sequence[str]) -> Options:
    """Parse arguments of the form `NAME=VALUE` into an instance of `kind`; commas separate the items of a list.

    A word for one entry of a mapping has the form `NAME.KEY=VALUE`.

    Raises BadOption if an option is unknown, given twice or wrong, or if a required option is missing.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        mapping, _, key = name.partition(".")
        is_entry = bool(key) and mapping in fields and _is_mapping(fields[mapping].type)
        if not equals or not (is_entry or name in fields):
            raise BadOption(f"--option {word}; allowed: NAME=VALUE, with NAME one of {', '.join(fields)}")
        into, own = (given.setdefault(mapping, {}), key) if is_entry else (given, name)
        if own in into:
            raise BadOption(f"--option {name}: the option is given twice; give each option once")
        into[own] = value if is_entry else _value(name, value, fields[name].type)
    for name, field in fields.items():
        if field.required and name not in given:
            raise BadOption(f"--option {name}=...: the option is missing; allowed: {allowed(field.type)}")
    return kind(**given)


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a field's type, without `| None`."""
    schema = msgspec.json.schema(kind)
    inner: dict[str, Any] = schema.get("anyOf", [schema])[0]
    return inner


def _is_mapping(kind: Any) -> bool:
    return json_schema(kind).get("type") == "object"


def _check_entries(name: str, kind: Any, value: Any) -> None:
    """Raise BadOption if an entry `KEY=VALUE` of a mapping does not match the pattern of the mapping's type."""
    if not _is_mapping(kind):
        return
    pattern = json_schema(kind)["pattern"]
    for key, each in value.items():
        if re.search(pattern, f"{key}={each}") is None:
            raise BadOption(f"{name}.{key}={each}; allowed: {allowed(kind)}")


def _value(name: str, text: str, kind: Any) -> Any:
    raw = text.split(",") if "items" in json_schema(kind) else text
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError:
        raise BadOption(f"--option {name}={text}; allowed: {allowed(kind)}") from None


def allowed(kind: Any) -> str:
    """Return the allowed values of a field, in words."""
    return _in_words(json_schema(kind))


def _in_words(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"description": description}:
            return str(description)
        case {"type": "boolean"}:
            return "true or false"
        case {"enum": values}:
            return " or ".join(map(str, values))
        case {"items": item}:
            return f"a list with commas, in which each item is {_in_words(item)}"
        case {"type": "integer"}:
            return "a whole number" + (f", {schema['minimum']} or more" if "minimum" in schema else "")
    return "text"


BYTES_MAX: Final = 4096
FINDINGS_BYTES_MAX: Final = BYTES_MAX // 2


def summed(read: str, findings: Sequence[str]) -> str:
    """Return a sentence that says what the job has read, what the first finding is, and how many more there are.

    A finding is a sentence about a problem that the job has found.
    """
    if not findings:
        return f"{read}; no problem was found"
    more = f" (and {len(findings) - 1:,} more)" if len(findings) > 1 else ""
    return f"{read}; {findings[0]}{more}"


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job. A job that can find problems has its own `fine`, and a `summary` for its message."""

    @property
    def fine(self) -> bool:
        """True if the job found no problem: always, unless the job says otherwise. A run that fails has no result."""
        return True


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The exit code of a job, a message in one line, the result, and the table that is the ledger, if there is one."""

    exit: int
    message: str
    result: dict[str, Any] | None = None
    ledger: str | None = None

    def shortened(self) -> bytes:
        """Return the termination message as JSON of at most BYTES_MAX bytes.

        If the JSON is too long, shorten the list `findings` in `result` to half of BYTES_MAX. If the JSON is still too
        long, leave out in this order: the largest lists and objects of `result`, the whole `result`, the end of
        `message`, and `ledger`.
        """
        ending = self
        while len(written := msgspec.json.encode(ending)) > BYTES_MAX:
            over = len(written) - BYTES_MAX
            ending = ending._with_fewer_findings() or ending._without_largest() or ending._with_less_to_say(over)
        return written

    def _with_fewer_findings(self) -> "Ending | None":
        """Return a copy with only as many findings as fit into half of BYTES_MAX, or None if all findings fit."""
        found = (self.result or {}).get("findings")
        if not isinstance(found, list) or len(msgspec.json.encode(found)) <= FINDINGS_BYTES_MAX:
            return None
        kept = list[Any]()
        for each in found:
            if len(msgspec.json.encode([*kept, each])) > FINDINGS_BYTES_MAX - 100:
                break
            kept.append(each)
        more = f"{len(found) - len(kept)} more findings; see the report, or the log of the pod"
        return msgspec.structs.replace(self, result={**(self.result or {}), "findings": [*kept, more]})

    def _without_largest(self) -> "Ending | None":
        """Return a copy in which the largest list or object of `result` is replaced by its number of items.

        The list `findings` is not replaced. Return None if `result` has no other list or object.
        """
        parts = {
            name: value
            for name, value in (self.result or {}).items()
            if isinstance(value, list | dict) and name != "findings"
        }
        if not parts:
            return None
        largest = max(parts, key=lambda name: len(msgspec.json.encode(parts[name])))
        count = f"{len(parts[largest])} items; see the log of the pod"
        return msgspec.structs.replace(self, result={**(self.result or {}), largest: count})

    def _with_less_to_say(self, bytes_over: int) -> "Ending":
        """Return a smaller copy of an ending whose JSON is `bytes_over` bytes too long.

        Remove `result`. If there is no `result`, shorten `message`. If `message` has at most one character, remove
        `ledger`.

        `message` loses `bytes_over` / 6 characters (at least one), because a character takes up to 6 bytes in JSON. If
        that is not enough, `shortened` calls this function again.
        """
        if self.result is not None:
            return msgspec.structs.replace(self, result=None)
        if len(self.message) <= 1:
            return msgspec.structs.replace(self, ledger=None)
        kept = max(0, len(self.message) - max(1, bytes_over // 6) - 1)
        return msgspec.structs.replace(self, message=self.message[:kept] + "\N{HORIZONTAL ELLIPSIS}")
