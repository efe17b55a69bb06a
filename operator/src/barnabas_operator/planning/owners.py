"""The choice of the owner of several resources that are about the same in Kafka. Pure.

Only those that can be read count: nobody knows for sure what one with an invalid spec is about.
"""

from collections.abc import Callable, Iterable

from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.resource import Resource


def owners(declared: Iterable[ResourceT], subject: Callable[[ResourceT], str]) -> dict[str, ResourceT]:
    """Return the owner of each subject: the oldest of several resources, and the first of those as old."""
    found: dict[str, ResourceT] = {}
    for each in declared:
        owner = found.get(subject(each))
        if owner is None or _age(each) < _age(owner):
            found[subject(each)] = each
    return found


def owned_by(owner: Resource, name: str) -> Refusal:
    """Return why a younger resource that is about the same waits; `name` is Kafka's."""
    thing = KINDS[owner.kind].thing.capitalize()
    message = f"{thing} {name} is managed by the older resource {owner.metadata.name}"
    return Refusal(RESOURCE_CONFLICT, f"{message}; allowed: one {owner.kind} each")


def _age(resource: Resource) -> tuple[bool, str]:
    created = resource.metadata.creation_timestamp  # RFC 3339 in UTC, whose order is that of the text.
    return created is None, created or ""
