"""What the work on a group says, for its status. Pure."""

from dataclasses import dataclass

from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ResetStatus
from barnabas_operator.resources.object_meta import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    """What the parts so far say. What is None is as it was in the status before."""

    problem: Refusal | None = None
    """Why `Ready` is False."""
    conditions: tuple[Condition, ...] = ()
    """Beside Ready and WithinObjective. One that nobody says any more goes."""
    reset: ResetStatus | None = None
    replicas: int | None = None
    is_resetting: bool = False
    """A reset goes on, or waits: nobody else scales the target."""
    is_busy: bool = False
    """The next look comes soon."""
