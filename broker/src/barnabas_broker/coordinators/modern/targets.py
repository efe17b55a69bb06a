"""The target assignment of a modern group: the topics that it is about, and what each member is to have of them."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from barnabas_broker.coordinators.modern.assignors import Assignment, Subscriber
from barnabas_broker.coordinators.modern.group import GroupChange, ModernGroup
from barnabas_broker.coordinators.modern.records import Kind, TargetEpoch
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_core.loop_turns import InSteps

AT_ONCE_MAX: Final = 1_000
"""The members and partitions for which an assignment is computed in the turn of the heartbeat that needs it."""
_HASH_BYTES: Final = 8
_NAME_BYTES: Final = 8
_TOPIC_BYTES: Final = 64


class KnownTopic(NamedTuple):
    """The facts about a topic on which an assignment depends."""

    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster."""

    def version(self) -> int:
        """Return a number that rises whenever a topic is created or deleted, or gets partitions."""
        ...

    def find(self, name: str) -> KnownTopic | None:
        """Return the topic with this name, or None."""
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        ...


def metadata_hash(group: ModernGroup, topics: Topics) -> int:
    """Return a hash of the group's topics, with their ids and numbers of partitions; 0 if it has no topic."""
    digest, found_any = hashlib.blake2b(digest_size=_HASH_BYTES), False
    for name in sorted(group.all_topics()):
        found = topics.find(name)
        if found is not None:
            found_any = True
            digest.update(b"%b\0%b%d\0" % (name.encode(), found.topic_id.bytes, found.partition_count))
    return int.from_bytes(digest.digest(), "big", signed=True) if found_any else 0


def chosen_assignor(votes: Mapping[str, int], names: Sequence[str]) -> str:
    """Return the assignor that most members name; the first one in the list if no member names any, or at a tie."""
    return max(names, key=lambda name: votes.get(name, 0))


def question(group: ModernGroup, topics: Topics) -> InSteps[tuple[dict[str, Subscriber], dict[UUID, int]]]:
    """Return the arguments of an assignor: the members with their topics, and the numbers of partitions.

    Other tasks may change the group between two steps, which then needs another assignment anyway.
    """
    counts: dict[UUID, int] = {}
    known: dict[frozenset[str], frozenset[UUID]] = {}
    names_of: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
    subscribers = {}
    for member in list(group.members.values()):
        metadata = member.known
        key = metadata.subscribed_topic_names, metadata.subscribed_topic_regex
        if key not in names_of:
            names_of[key] = group.topics_of(metadata)
            yield len(names_of[key]) * _NAME_BYTES
        names = names_of[key]
        if names not in known:
            found = [each for each in map(topics.find, names) if each is not None]
            counts.update((each.topic_id, each.partition_count) for each in found)
            known[names] = frozenset(each.topic_id for each in found)
            yield len(found) * _TOPIC_BYTES
        subscribers[member.member_id] = Subscriber(metadata.instance_id, known[names], member.target)
        yield 0
    return subscribers, counts


def write_targets(change: GroupChange, targets: Mapping[str, Assignment], epoch: int, now: Now) -> None:
    """Write the targets that differ, then the epoch of the group for which they were computed."""
    for member_id, target in changed_targets(change.group, targets):
        change.write(Kind.TARGET, member_id, target)
    write_target_epoch(change, epoch, now)


def write_target_epoch(change: GroupChange, epoch: int, now: Now) -> None:
    """Write the epoch of the group for which the targets were computed."""
    change.write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, now.wall_ms))


def changed_targets(group: ModernGroup, targets: Mapping[str, Assignment]) -> list[tuple[str, Assignment]]:
    """Return the targets that differ from those of the members; other members keep theirs."""
    found: list[tuple[str, Assignment]] = []
    for member_id, assigned in targets.items():
        member = group.members.get(member_id)
        target = {topic_id: numbers for topic_id, numbers in assigned.items() if numbers}
        if member is not None and target != member.target:
            found.append((member_id, target))
    return found
