"""The maintenance jobs and their options, read from `job_table.json`, which `make job-table` writes.

The operator cannot import the jobs, because they need Spark.
"""

import pkgutil
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field, json


class JobOption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for the value of an option, with `allowed` as its description. Bounds of a list apply to each item."""

    required: bool
    allowed: str
    type: Literal["string", "integer", "number", "boolean", "time"]
    list: bool = False
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = field(default=())


class JobRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule about two options; `allowed` describes the rule in words.

    The kind `ordered` means that `option` must be less than `other` if both are given. The kind `needs` means that
    `other` must be true if `option` is given. The kind `excludes` means that at most one of the two may be true.
    """

    kind: Literal["ordered", "needs", "excludes"]
    option: str
    other: str
    allowed: str


class JobEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maintenance job, with its options by name."""

    summary: str
    options: dict[str, JobOption]
    rules: tuple[JobRule, ...] = ()


def _read() -> Mapping[str, JobEntry]:
    text = pkgutil.get_data(__package__, "job_table.json")
    assert text is not None, "job_table.json is missing in the package"
    return json.decode(text, type=dict[str, JobEntry])


JOB_TABLE: Final = _read()
"""The maintenance jobs by name."""
