"""Resources whose brokers cannot be asked now, or are not to be: who may go, and what the others report. Pure."""

from typing import Final

from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC, Refusal
from barnabas_operator.planning.topics.topic_checks import deletion_protected
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import READY, condition_of
from barnabas_operator.resources.resource import Resource

PASSING: Final = (None, CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC)
"""The reasons for not being ready in which brokers had no part: they may hold no more."""


def may_go(resource: Resource) -> bool:
    """True if nothing is to be done, or to be reported, before the resource is gone."""
    return bool(resource.spec.deletion_policy == "Retain") or resource.is_paused


def with_waiting(resource: ResourceT, why: str, now: str) -> ResourceT:
    """Return the resource with the status of one that waits; unchanged if its status still holds."""
    return with_problem(resource, why_waiting(resource, why), now) if has_news(resource) else resource


def has_news(resource: Resource) -> bool:
    """True if its status is not yet about the resource as it is declared now."""
    if resource.metadata.deletion_timestamp is not None or resource.status is None:
        return True
    ready = condition_of(resource.status.conditions, READY)
    is_old = resource.status.observed_generation != resource.metadata.generation
    return is_old or (ready.reason if ready is not None else None) in PASSING


def why_waiting(resource: Resource, why: str) -> Refusal | None:
    """Return what the status says about why a resource waits."""
    if resource.metadata.deletion_timestamp is None:
        return None if resource.is_paused else Refusal(CLUSTER_NOT_READY, why)
    thing, policy = KINDS[resource.kind].thing, resource.spec.deletion_policy
    if policy == "Protect":
        return deletion_protected(f"{thing.capitalize()} {resource.metadata.name}", "another policy")
    at_once = f"with spec.deletionPolicy Retain this resource is deleted at once, and its {thing} is kept"
    return Refusal(CLUSTER_NOT_READY, f"{why}; then {policy} is carried out; {at_once}")
