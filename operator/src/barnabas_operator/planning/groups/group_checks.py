"""The checks that may refuse a ConsumerGroup; the first refusal becomes the condition of the ConsumerGroup."""

from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.owners import other_cluster, owned_by
from barnabas_operator.planning.refusal import NOT_SUPPORTED, RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupStatus

GroupCheck = Callable[[ConsumerGroup, ConsumerGroup, GroupSeen], Refusal | None]
"""The type of a check: it gets the resource, the resource that owns the group, and the observed group."""


def refuse_group(group: ConsumerGroup, owner: ConsumerGroup, seen: GroupSeen) -> Refusal | None:
    """Return the refusal of the first check that refuses the resource, or None."""
    return next((refusal for check in CHECKS if (refusal := check(group, owner, seen)) is not None), None)


def is_claimed(group: ConsumerGroup) -> bool:
    """True if the resource has managed its group before, so that its deletionPolicy applies to the group."""
    return group.status is not None and group.status.group_id == group.group_id


def of_the_oldest(group: ConsumerGroup, owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a resource if an older resource manages the same group."""
    return owned_by(owner, group.group_id) if owner is not group else None


def same_group_as_before(group: ConsumerGroup, _owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a group id other than that in the status, because Kafka cannot rename a group."""
    had = (group.status or ConsumerGroupStatus()).group_id
    if had in (None, group.group_id):
        return None
    return Refusal(
        NOT_SUPPORTED, f"Changing spec.groupId is not supported: the group id is {group.group_id}; allowed: {had}"
    )


def same_cluster_as_before(group: ConsumerGroup, _owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a Cluster other than that in the status, because a group cannot move to another cluster."""
    return other_cluster(group, (group.status or ConsumerGroupStatus()).cluster)


def may_adopt(group: ConsumerGroup, _owner: ConsumerGroup, seen: GroupSeen) -> Refusal | None:
    """Refuse a group that existed before the resource, unless spec.adopt is true."""
    if group.spec.adopt or is_claimed(group) or not seen.is_there:
        return None
    message = f"group {group.group_id} existed before the ConsumerGroup, and spec.adopt is false"
    return Refusal(RESOURCE_CONFLICT, f"{message}; to adopt the group, set spec.adopt to true")


CHECKS: Final[tuple[GroupCheck, ...]] = (of_the_oldest, same_cluster_as_before, same_group_as_before, may_adopt)
