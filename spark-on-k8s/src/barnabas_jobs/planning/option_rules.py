"""Rules between two options of a job, as data, so that the operator can check them without Spark."""

from datetime import datetime
from typing import Any, Literal

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for the values of two options; `allowed` says in words which values are permitted.

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
        return f"{self.option}={_text(one)} and {self.other}={_text(other)}; allowed: {self.allowed}"


def range_rule(of: str) -> Rule:
    """Return the rule that `to_NAME` is after `from_NAME`."""
    return Rule(kind="ordered", option=f"from_{of}", other=f"to_{of}", allowed=f"from_{of} < to_{of}")


def _text(value: Any) -> str:
    """Return the value of an option as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
