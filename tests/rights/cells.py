"""The cells of the table: a request in one version, without one right, about existing or missing resources."""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.acls import ResourceType
from rights.asks import ASKS, Ask, Names, Right

THERE: Final = "there"
ABSENT: Final = "absent"
NO_TOPIC: Final = UUID("01234567-89ab-4def-8123-456789abcdef")


class Way(Enum):
    """The ways in which a user lacks a right."""

    NOTHING = "with no right"
    WITHOUT = "without"
    DENIED = "denied"
    ALL = "with all rights"


class Grants(NamedTuple):
    """The ACLs of one user for the resources of the table. A denial comes with all other rights."""

    allowed: frozenset[Right] = frozenset()
    denied: frozenset[Right] = frozenset()


class Cell(NamedTuple):
    """One request of one user."""

    ask: Ask
    version: int
    is_there: bool
    way: Way
    missing: Right | None
    grants: Grants

    @property
    def title(self) -> str:
        """Return the name of the request and the missing right."""
        right = "" if self.missing is None else f" {self.missing[0].name} {self.missing[1].name}"
        return f"{self.ask.title}, {self.way.value}{right}"

    @property
    def place(self) -> str:
        """Return the version, and whether the resources exist."""
        return f"v{self.version} {THERE if self.is_there else ABSENT}"

    def __str__(self) -> str:
        return f"{self.title}, {self.place}"


def cells() -> Iterator[Cell]:
    """Yield all cells. Those with all rights come last, since they change resources."""
    found = [each for ask in ASKS for version in ask.versions() for each in _of_ask(ask, version)]
    yield from sorted(found, key=lambda each: each.way is Way.ALL)


def _of_ask(ask: Ask, version: int) -> Iterator[Cell]:
    needs = ask.needs(version)
    every = frozenset(rights[0] for rights in needs)
    for is_there in (True, False):
        yield Cell(ask, version, is_there, Way.ALL, None, Grants(every))
        yield Cell(ask, version, is_there, Way.NOTHING, None, Grants())
        for rights in needs:
            missing = rights[0]
            if len(every) > 1:
                yield Cell(ask, version, is_there, Way.WITHOUT, missing, Grants(every - {missing}))
            yield Cell(ask, version, is_there, Way.DENIED, missing, Grants(denied=frozenset(rights)))


def names(*, is_there: bool, topic_id: UUID) -> Names:
    """Return the names of the resources in requests."""
    end = THERE if is_there else ABSENT
    return Names(f"topic-{end}", topic_id if is_there else NO_TOPIC, f"group-{end}", f"id-{end}", f"user-{end}")


def users(of: list[Cell]) -> dict[Grants, str]:
    """Return the name of a user for each set of rights."""
    return {grants: f"user{number}" for number, grants in enumerate(dict.fromkeys(each.grants for each in of))}


def resource_names(kind: ResourceType) -> list[str]:
    """Return the names of resources in an allowing ACL."""
    if kind is ResourceType.CLUSTER:
        return ["kafka-cluster"]
    which = {
        ResourceType.TOPIC: "topic",
        ResourceType.GROUP: "group",
        ResourceType.TRANSACTIONAL_ID: "transactional_id",
    }
    pair = (names(is_there=is_there, topic_id=NO_TOPIC) for is_there in (True, False))
    return [getattr(each, which[kind]) for each in pair]


ALL_KINDS: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
