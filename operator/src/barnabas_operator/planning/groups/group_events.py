"""The Kubernetes Events for changes to the status of a ConsumerGroup."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_operator.planning.conditions import condition_before
from barnabas_operator.planning.groups.group_seen import NOT_FOUND
from barnabas_operator.planning.groups.objective import MISSED
from barnabas_operator.planning.groups.reset_conditions import done_message
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupStatus
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import WITHIN_OBJECTIVE, condition_of

STALLED: Final[Mapping[str, tuple[str, str]]] = {
    "STALL": ("GroupStalled", "the group has members and lag, and its committed offsets do not move"),
    "STOP": ("GroupStopped", "the group has lag and no members"),
    "REWIND": ("GroupRewound", "the group's committed offsets moved backwards"),
}
"""The reason and the message of the Event for each of Burrow's statuses that is worth a warning."""
GONE: Final = "GroupGone"
RESET: Final = "OffsetsReset"


def group_events(group: ConsumerGroup, before: Json) -> Iterator[Said]:
    """Yield the Events for the change from `before`, the earlier status as JSON, to the group's status.

    Events report a missed or regained objective, a group that stalled, a finished reset, and a group that is gone.
    """
    status = group.status or ConsumerGroupStatus()
    yield from _objective(status, before)
    yield from _reset(status, before)
    word = status.evaluation
    if word is not None and word in STALLED and before.get("evaluation") != word:
        yield "Warning", *STALLED[word]
    if status.state == NOT_FOUND and before.get("state") not in (None, NOT_FOUND):
        yield "Warning", GONE, "the group no longer exists: it was deleted, or its committed offsets have expired"


def _reset(status: ConsumerGroupStatus, before: Json) -> Iterator[Said]:
    """Yield an Event after a reset has committed its offsets, once for each reset id."""
    done, was = status.reset, before.get("reset") or {}
    if done is None or done.done_at is None or (was.get("id") == done.id and "doneAt" in was):
        return
    yield "Normal", RESET, done_message(done)


def _objective(status: ConsumerGroupStatus, before: Json) -> Iterator[Said]:
    reported, was = condition_of(status.conditions, WITHIN_OBJECTIVE), condition_before(before, WITHIN_OBJECTIVE)
    if reported is None or reported.status == was.get("status"):
        return
    if reported.reason == MISSED:
        yield "Warning", reported.reason, reported.message
    elif reported.status == "True" and was.get("reason") == MISSED:
        yield "Normal", reported.reason, "the lag is within spec.lagObjective again"
