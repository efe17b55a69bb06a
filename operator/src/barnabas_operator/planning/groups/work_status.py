"""The results of reset and scaling of a group, for its status."""

from dataclasses import dataclass, replace

from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ResetStatus
from barnabas_operator.resources.object_meta import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    """The results of reset and scaling so far.

    If `reset` or `replicas` is None, the status keeps the field's earlier value, unless the spec no longer declares a
    reset or scaling.
    """

    problem: Refusal | None = None
    """The reason why `Ready` is False, or None if `Ready` is True."""
    conditions: tuple[Condition, ...] = ()
    """The conditions of the new status besides Ready and WithinObjective.

    Conditions of the old status that are not in this tuple are dropped.
    """
    reset: ResetStatus | None = None
    replicas: int | None = None
    is_resetting: bool = False
    """True if a reset is in progress or waits; the operator then must not scale the target by its lag."""
    is_busy: bool = False
    """True if the operator must observe the group again soon."""

    def with_condition(self, said: Condition) -> "WorkStatus":
        """Return a copy with one condition more."""
        return replace(self, conditions=(*self.conditions, said))
