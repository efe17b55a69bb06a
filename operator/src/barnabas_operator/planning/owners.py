"""The choice of the owner if several resources declare the same topic, user or group, and the Cluster that has it.

Resources with an invalid spec are left out, because their topic, user or group is not known.
"""

from collections.abc import Callable, Iterable

from barnabas_operator.planning.refusal import NOT_SUPPORTED, RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.resource import Resource


def owners(declared: Iterable[ResourceT], subject: Callable[[ResourceT], str]) -> dict[str, ResourceT]:
    """Return the owner of each topic, user or group: the oldest resource, or the first of several equally old ones."""
    found: dict[str, ResourceT] = {}
    for each in declared:
        owner = found.get(subject(each))
        if owner is None or _age(each) < _age(owner):
            found[subject(each)] = each
    return found


def owned_by(owner: Resource, name: str) -> Refusal:
    """Return the Refusal for a resource that declares what the older resource `owner` already manages.

    `name` is the name of the topic, user or group in Kafka.
    """
    thing = KINDS[owner.kind].thing.capitalize()
    message = f"{thing} {name} is managed by the older resource {owner.metadata.name}"
    return Refusal(RESOURCE_CONFLICT, f"{message}; delete the newer {owner.kind}")


def other_cluster(resource: Resource, has_it: str | None) -> Refusal | None:
    """Refuse a resource that names another Cluster than `has_it`, which has its topic, user or group."""
    if has_it is None or resource.spec.cluster in (None, has_it):
        return None
    where = f"spec.cluster is {resource.spec.cluster}; allowed: {has_it}"
    return Refusal(NOT_SUPPORTED, f"{where} (a {resource.kind} cannot move to another Cluster)")


def _age(resource: Resource) -> tuple[bool, str]:
    created = resource.metadata.creation_timestamp  # RFC 3339 times in UTC can be sorted as strings.
    return created is None, created or ""
