"""The results of the work on a group, for its status. Pure."""

from dataclasses import dataclass

from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ResetStatus
from barnabas_operator.resources.object_meta import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    """The results of the parts so far. A None keeps the value of the earlier status."""

    problem: Refusal | None = None
    """The reason why `Ready` is False."""
    conditions: tuple[Condition, ...] = ()
    """The conditions beside Ready and WithinObjective. A condition that is no longer reported is removed."""
    reset: ResetStatus | None = None
    replicas: int | None = None
    is_resetting: bool = False
    """True if a reset is under way or waits; no other part may scale the target then."""
    is_busy: bool = False
    """True if the next look must come soon."""
