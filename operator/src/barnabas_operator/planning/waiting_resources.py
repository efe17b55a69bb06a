"""The rules for deletions and statuses of resources while their Cluster cannot be reached."""

from typing import Final

from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC, Refusal
from barnabas_operator.planning.topics.topic_checks import deletion_protected
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import READY, condition_of
from barnabas_operator.resources.resource import Resource

PASSING: Final = (None, CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC)
"""The reasons of the condition `Ready` that the operator replaces if the Cluster of a resource cannot be reached.

The new reason says that the Cluster cannot be reached. None stands for a resource without the condition `Ready`.
"""


def may_go(resource: Resource) -> bool:
    """True if the resource can be deleted without asking the brokers."""
    return bool(resource.spec.deletion_policy == "Retain") or resource.is_paused


def with_waiting(resource: ResourceT, why: str, now: str) -> ResourceT:
    """Return the resource with a status that says why the resource waits for its Cluster.

    If the status is up to date, return the resource unchanged.
    """
    return with_problem(resource, why_waiting(resource, why), now) if has_news(resource) else resource


def has_news(resource: Resource) -> bool:
    """True if the operator must write the status of a resource whose Cluster does not exist or is not ready."""
    if resource.metadata.deletion_timestamp is not None or resource.status is None:
        return True
    ready = condition_of(resource.status.conditions, READY)
    is_old = resource.status.observed_generation != resource.metadata.generation
    return is_old or (ready.reason if ready is not None else None) in PASSING


def why_waiting(resource: Resource, why: str) -> Refusal | None:
    """Return the refusal for a resource whose Cluster is not ready; `why` is the reason.

    Return None for a paused resource that is not being deleted. The refusal for a resource that is being deleted also
    explains the deletion policy.
    """
    if resource.metadata.deletion_timestamp is None:
        return None if resource.is_paused else Refusal(CLUSTER_NOT_READY, why)
    thing, policy = KINDS[resource.kind].thing, resource.spec.deletion_policy
    if policy == "Protect":
        return deletion_protected(f"{thing.capitalize()} {resource.metadata.name}", "another policy")
    at_once = f"if spec.deletionPolicy is changed to Retain, this resource is deleted at once, but not its {thing}"
    return Refusal(
        CLUSTER_NOT_READY, f"{why}; the deletion then follows spec.deletionPolicy, which is {policy}; {at_once}"
    )
