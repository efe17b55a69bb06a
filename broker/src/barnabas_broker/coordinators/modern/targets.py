"""The target assignment of a modern group, and the changes that lead to it: epochs, members that leave, timeouts."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.assignors import Assignment, AssignmentInSteps, Subscriber
from barnabas_broker.coordinators.modern.group import GroupChange, ModernGroup, ModernMember
from barnabas_broker.coordinators.modern.records import GroupEpoch, Kind, MemberState, TargetEpoch
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.config.group_configs import MemberConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, at_once

SUBSCRIBED_AT_ONCE_MAX: Final = 1_000
"""The members and their topics for which an assignment is computed in the turn of the heartbeat that needs it."""
ASSIGNED_AT_ONCE_MAX: Final = 2_000
"""The members and partitions for which it is computed in that turn: 2 ms if all subscribe to the same topics, or 5."""
_HASH_BYTES: Final = 8
_NAME_BYTES: Final = 8
_TOPIC_BYTES: Final = 64


class KnownTopic(msgspec.Struct, frozen=True):
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

    def created_since(self, version: int) -> Collection[str] | None:
        """Return the names of the topics that were created since a version; None if they are no longer known."""
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


SettingsT_co = TypeVar("SettingsT_co", bound=MemberConfig, covariant=True)


class World(msgspec.Struct, Generic[SettingsT_co], frozen=True):
    """The facts outside the group on which a decision depends."""

    now: Now
    settings: SettingsT_co
    topics: Topics


class Plan(msgspec.Struct, frozen=True):
    """The computation of a target assignment, and its size: the number of members and partitions."""

    size: int
    steps: AssignmentInSteps


def check_size(group: ModernGroup, world: World[Any], config: str) -> None:
    """Check that another member may join; `config` is the setting with the limit. Raises ApiError."""
    if len(group.members) >= world.settings.max_size:
        message = f"the group already has {len(group.members)} members, the most that {config} allows"
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def begin_epoch(change: GroupChange, world: World[Any], *, is_due: bool) -> None:
    """Begin the next epoch of the group if it is due, or if the group's topics have changed."""
    group, version = change.group, world.topics.version()
    topics_hash = group.metadata_hash
    if group.topics_version != version:
        topics_hash, group.topics_version = metadata_hash(group, world.topics), version
    if is_due or topics_hash != group.metadata_hash:
        change.bump(topics_hash)
    elif not group.is_stored:
        change.write(Kind.GROUP, "", GroupEpoch(group.epoch, topics_hash))
        change.write(Kind.TARGET_EPOCH, "", TargetEpoch(group.assignment_epoch))


def is_assignment_due(group: ModernGroup, world: World[Any]) -> bool:
    """True if the group needs a target assignment, and the interval since the last one is over."""
    if group.assignment_epoch >= group.epoch or group.is_assigning:
        return False
    # Another coordinator, or a clock that was set back, may be ahead.
    passed_ms = world.now.wall_ms - group.assignment_timestamp_ms
    return not 0 <= passed_ms < world.settings.assignment_interval_ms


def assign(change: GroupChange, planning: InSteps[Plan], now: Now) -> None:
    """Compute the target assignment at once, or ask for it if the group is large."""
    if change.group.subscription_size > SUBSCRIBED_AT_ONCE_MAX:
        change.wants_targets = True
        return
    plan = at_once(planning)
    if plan.size > ASSIGNED_AT_ONCE_MAX:
        change.wants_targets = True
    else:
        write_targets(change, at_once(plan.steps), change.group.epoch, now)


def drop_unused_patterns(change: GroupChange) -> None:
    """Remove the regular expressions by which no member subscribes any more."""
    for pattern in change.group.regexes.keys() - change.group.patterns.keys():
        change.write(Kind.REGEX, pattern, None)


def remove(change: GroupChange, members: Iterable[ModernMember], world: World[Any]) -> None:
    """Remove members, which left or are fenced, and begin the next epoch of the group."""
    group = change.group
    for member in members:
        change.remove_member(member.member_id)
    drop_unused_patterns(change)
    begin_epoch(change, world, is_due=True)
    if not group.members:
        change.write(Kind.TARGET_EPOCH, "", TargetEpoch(group.epoch, world.now.wall_ms))


def on_time(change: GroupChange, world: World[Any]) -> None:
    """Fence the members that have missed a deadline."""
    late = change.group.late(world.now)
    change.notes += [f"member {member.member_id} {missed}, and is fenced" for member, missed in late]
    if late:
        remove(change, [member for member, _ in late], world)


def begin_session(group: ModernGroup, member: ModernMember, world: World[Any]) -> None:
    """Begin the time in which the member must send its next heartbeat."""
    classic = member.known.classic_member_metadata
    timeout_ms = world.settings.session_timeout_ms if classic is None else classic.session_timeout_ms
    member.session_deadline_ms = group.expect(world.now.steady_ms + timeout_ms)


def restart_timeouts(group: ModernGroup, world: World[Any]) -> None:
    """Begin the sessions of all members, and the time to revoke partitions, after the group was loaded."""
    for member in group.members.values():
        begin_session(group, member, world)
        if member.current.state is MemberState.UNREVOKED:
            deadline_ms = world.now.steady_ms + member.known.rebalance_timeout_ms
            member.rebalance_deadline_ms = group.expect(deadline_ms)
