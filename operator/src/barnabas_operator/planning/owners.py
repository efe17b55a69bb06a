"""Which of several resources that are about the same in Kafka it belongs to. Pure."""

from collections.abc import Callable, Iterable

from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.resource import Resource


def owners(declared: Iterable[ResourceT], subject: Callable[[ResourceT], str]) -> dict[str, ResourceT]:
    """By what they are about: of several resources the oldest, and the first of those as old."""
    found: dict[str, ResourceT] = {}
    for each in declared:
        owner = found.get(subject(each))
        if owner is None or _age(each) < _age(owner):
            found[subject(each)] = each
    return found


def _age(resource: Resource) -> tuple[bool, str]:
    created = resource.metadata.creation_timestamp  # RFC 3339 in UTC, whose order is that of the text.
    return created is None, created or ""
