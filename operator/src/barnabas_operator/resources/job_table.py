"""The maintenance jobs and their options, read from `job_table.json`, which `make job-table` writes.

The jobs themselves need Spark, and the operator has none: it knows of them what is in that file.
"""

import pkgutil
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field, json


class JobOption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for an option's value: `allowed` says it in words. For a list, the other fields are about each item."""

    required: bool
    allowed: str
    type: Literal["string", "integer", "number", "boolean", "time"]
    list: bool = False
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = field(default=())


class JobRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule about two options together; `allowed` says it in words.

    `ordered`: if both are given, `option` is less than `other`. `needs`: if `option` is given, `other` is true.
    `excludes`: not both are true.
    """

    kind: Literal["ordered", "needs", "excludes"]
    option: str
    other: str
    allowed: str


class JobEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job; options by name."""

    summary: str
    options: dict[str, JobOption]
    rules: tuple[JobRule, ...] = ()


def _read() -> Mapping[str, JobEntry]:
    text = pkgutil.get_data(__package__, "job_table.json")
    assert text is not None, "the package has its data"
    return json.decode(text, type=dict[str, JobEntry])


JOB_TABLE: Final = _read()
"""The jobs, by name."""
