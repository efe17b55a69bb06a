"""The handling of ConsumerGroupHeartbeat requests, without IO and clock: members join, go on, leave and are fenced.

A function here checks first, and raises ApiError before it writes anything to the `GroupChange`.

`reconciled` leads a member from the partitions that it has to those of its target assignment.

| state | the next heartbeat | to |
|---|---|---|
| STABLE | has the epoch of the target, and its subscription lacks no assigned topic | STABLE, unchanged |
| STABLE, UNREVOKED | the subscription no longer has the topic of an assigned partition | UNREVOKED, in the same epoch |
| UNREVOKED | does not show that all partitions are revoked | UNREVOKED, unchanged |
| STABLE, UNREVOKED, UNRELEASED | must revoke partitions that are not in the target | UNREVOKED, in the same epoch |
| STABLE, UNREVOKED, UNRELEASED | lacks partitions that other members still have | UNRELEASED, in the target's epoch |
| STABLE, UNREVOKED, UNRELEASED | has, or now gets, all partitions of the target | STABLE, in the target's epoch |

A partition has at most one owner: a member gets it when no other member has it, or is still to revoke it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.assignors import ASSIGNORS, Assignment
from barnabas_broker.coordinators.modern.group import (
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroup,
    GroupChange,
    Matching,
    ModernGroup,
    ModernMember,
)
from barnabas_broker.coordinators.modern.records import (
    NOTHING,
    ClassicMetadata,
    Current,
    Kind,
    MemberMetadata,
    MemberState,
    Owned,
    ResolvedRegex,
)
from barnabas_broker.coordinators.modern.targets import (
    Plan,
    Topics,
    World,
    assign,
    begin_epoch,
    begin_session,
    check_size,
    chosen_assignor,
    drop_unused_patterns,
    is_assignment_due,
    question,
    remove,
)
from barnabas_broker.coordinators.name_patterns import NamePattern
from barnabas_core.config.group_configs import GroupConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, at_once

Reported = Mapping[UUID, Collection[int]] | None
"""The partitions that a member says it owns, by topic id; None if the heartbeat does not say."""


class Aim(msgspec.Struct, frozen=True):
    """The target assignment that a member is to reach, its epoch, and what stands in the way."""

    epoch: int
    target: Assignment
    reported: Reported
    topics: frozenset[UUID] | None
    """The topics of its assignment and target to which the member subscribes.

    None if its regular expression is not resolved yet, or if the target was computed for its subscription.
    """
    free: Callable[[UUID, Set[int]], Collection[int]]
    """Return those partitions of a topic that no other member has."""


def reconciled(current: Current, aim: Aim) -> Current:
    """Return the member's next assignment; the same object if nothing changes."""
    if current.state is MemberState.STABLE and current.epoch == aim.epoch:
        return _without_unsubscribed(current, aim)
    if current.state is MemberState.UNREVOKED and _still_owns(aim.reported, current.revoking):
        return _without_unsubscribed(current, aim)
    return _next(current, aim)


def _still_owns(reported: Reported, revoking: Owned) -> bool:
    """True if the member owns partitions that it must revoke, or may own them because it does not say."""
    if reported is None:
        return True
    return any(not revoking.get(topic_id, NOTHING).keys().isdisjoint(owned) for topic_id, owned in reported.items())


def _without_unsubscribed(current: Current, aim: Aim) -> Current:
    """Return the assignment in which topics to which the member no longer subscribes are to be revoked."""
    gone = {} if aim.topics is None else {each: current.assigned[each] for each in current.assigned.keys() - aim.topics}
    if not gone:
        return current
    revoking = {topic_id: {**current.revoking.get(topic_id, NOTHING), **epochs} for topic_id, epochs in gone.items()}
    return current._replace(
        state=MemberState.UNREVOKED,
        assigned={topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in gone},
        revoking={**current.revoking, **revoking},
    )


def _next(current: Current, aim: Aim) -> Current:
    kept, revoking, added, is_whole = _differences(current, aim)
    if revoking and _still_owns(aim.reported, revoking):
        return _unless_equal(current, current.epoch, MemberState.UNREVOKED, kept, revoking)
    assigned = {**kept, **added}
    for topic_id in added.keys() & kept.keys():
        assigned[topic_id] = {**kept[topic_id], **added[topic_id]}
    state = MemberState.STABLE if is_whole else MemberState.UNRELEASED
    return _unless_equal(current, aim.epoch, state, assigned, NOTHING)


def _differences(current: Current, aim: Aim) -> tuple[Owned, Owned, Owned, bool]:
    """Return what the member keeps, what it must revoke, what it gets, and whether it then has its whole target."""
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, Mapping[int, int]] = {}
    is_whole = True
    gained: dict[frozenset[int], Mapping[int, int]] = {}  # The same object for all topics in which it is the same.
    for topic_id, epochs, wanted in _topics(current, aim):
        is_subscribed = aim.topics is None or topic_id in aim.topics
        target = wanted if is_subscribed else frozenset()
        if not target or target == epochs.keys():  # A group with thousands of topics has no time for the general way.
            if epochs:
                (kept if target else revoking)[topic_id] = epochs
            continue
        lacking = target - epochs.keys() if epochs else target
        free = aim.free(topic_id, lacking)
        is_whole &= len(free) == len(lacking)
        if free:
            numbers = frozenset(free)
            if numbers not in gained:
                gained[numbers] = dict.fromkeys(sorted(numbers), aim.epoch)
            added[topic_id] = gained[numbers]
        if not epochs:
            continue
        for found, is_kept in ((kept, True), (revoking, False)):
            epochs_of = {number: epoch for number, epoch in epochs.items() if (number in target) is is_kept}
            if epochs_of:
                found[topic_id] = epochs_of
    return kept, revoking, added, is_whole


def _topics(current: Current, aim: Aim) -> Iterator[tuple[UUID, Mapping[int, int], frozenset[int]]]:
    """Yield each topic that the member has or is to have, with both."""
    assigned, target = current.assigned, aim.target
    for topic_id, epochs in assigned.items():
        yield topic_id, epochs, target.get(topic_id, frozenset())
    for topic_id, numbers in target.items():
        if not assigned or topic_id not in assigned:  # To hash an id takes as long as all else here.
            yield topic_id, NOTHING, numbers


def _unless_equal(current: Current, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> Current:
    """Return the next assignment, or the current one if it is equal; a new epoch makes the last one the previous."""
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    found = Current(epoch, previous, state, assigned, revoking)
    return current if found == current else found


def topic_pattern(text: str) -> NamePattern:
    """Compile the SubscribedTopicRegex of a heartbeat. ApiError says why it is not valid."""
    try:
        return NamePattern(text)
    except ValueError as error:
        message = f"SubscribedTopicRegex `{text[:256]}` is not a valid regular expression: {error}."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def resolve(texts: Iterable[str], topics: Sequence[str]) -> InSteps[dict[str, list[str]]]:
    """Return the topics that each expression matches, in steps of about a millisecond.

    An expression that is not valid matches nothing: an older version or Apache Kafka may have stored it.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        try:
            pattern = NamePattern(text)
        except ValueError:
            found[text] = []
        else:
            found[text] = yield from pattern.fitting(topics)
        yield 0
    return found


SOONER: Final = 10
"""The part of the heartbeat interval after which a member that waits for partitions of others comes back."""
OFTEN: Final = 4
"""The part of the heartbeat interval after which members come back while changes of the group are likely."""
LIKELY_INTERVALS: Final = 12
"""The heartbeat intervals after an assignment in which another one is likely: a roll changes a group many times."""
OFTEN_PER_S_MAX: Final = 500
"""The heartbeats that members of a group send in a second at most because changes are likely."""
UNCHANGED_TIMEOUT: Final = -1
MATCHED_AT_ONCE_MAX: Final = 2_000
"""The names that are matched with regular expressions in the turn of a heartbeat: about a millisecond of work."""
COMPILED_AS_NAMES: Final = 100
"""The number of matches of a name that take as long as to compile an expression: 0.05 to 0.5 ms."""
MATCHING_PAUSE_MS: Final = 10_000
"""The pause before the expressions of a group are matched with all names again because there are other topics."""
PAUSE_OF_PATTERN_MS: Final = 10
"""The pause for each expression before all are matched with the names of new topics: twenty times what that takes."""
JOIN_EPOCH: Final = 0
SUBSCRIPTION_BYTES_MAX: Final = 512 * 1024
"""The bytes of a member's subscription. A record that the log does not take would make the partition load again."""

SUBSCRIBED_TOPICS_MAX: Final = 10_000
"""The topics that a member may name. They are decided on and stored in one turn of the event loop: about 30 ms."""


BeatWorld = World[GroupConfig]
"""The facts outside a consumer group on which a decision depends."""


class Beat(NamedTuple):
    """A ConsumerGroupHeartbeat request; None means that the value has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: Sequence[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Reported = None
    classic: ClassicMetadata | None = None
    """The metadata of a member that uses the classic protocol, which sends JoinGroup requests."""
    may_describe: Callable[[str], bool] = lambda _: True
    """Return True if the client may describe a topic, so that its regular expression matches the topic's name."""

    @property
    def is_full(self) -> bool:
        """True if the request has all that a member may leave out, so that the answer has the assignment."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED_TIMEOUT and has_subscription and self.owned is not None


class BeatReply(NamedTuple):
    """The answer to a ConsumerGroupHeartbeat; an assignment of None has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, Collection[int]] | None = None


def check(beat: Beat, api_version: int, assignors: Sequence[str]) -> None:
    """Check the fields of a request that do not depend on the group. Raises ApiError."""
    is_first_of_v0 = api_version == 0 and beat.epoch == JOIN_EPOCH
    checks = (
        (not beat.member_id and not is_first_of_v0, "the member id must not be empty"),
        (not beat.group_id, "the group id must not be empty"),
        (beat.instance_id == "", "the group instance id must be null or not empty"),
        (beat.rack_id == "", "the rack id must be null or not empty"),
        (
            beat.epoch < LEAVE_FOR_A_WHILE_EPOCH,
            f"the member epoch is {beat.epoch}, but must be {LEAVE_FOR_A_WHILE_EPOCH} or more",
        ),
        (beat.epoch == LEAVE_FOR_A_WHILE_EPOCH and beat.instance_id is None, "only a static member has epoch -2"),
    )
    for is_wrong, message in (*checks, *(_join_checks(beat) if beat.epoch == JOIN_EPOCH else ())):
        if is_wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if beat.assignor is not None and beat.assignor not in assignors:
        message = f"the assignor is {beat.assignor!r}, but must be one of {', '.join(assignors)}"
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _join_checks(beat: Beat) -> Iterable[tuple[bool, str]]:
    has_subscription = beat.topic_names is not None or beat.topic_regex is not None
    return (
        (beat.rebalance_timeout_ms == UNCHANGED_TIMEOUT, "a member that joins must name its rebalance timeout"),
        (beat.owned is None or len(beat.owned) > 0, "a member that joins must own no partitions, and say so"),
        (not has_subscription, "a member that joins must name its topics, or a regular expression"),
    )


def heartbeat(change: GroupChange, group: ConsumerGroup, beat: Beat, world: BeatWorld) -> BeatReply:
    """Decide on a heartbeat; `change` is one of the group. Raises ApiError."""
    _check_size(beat)
    member = _sender(group, beat)
    if beat.epoch < JOIN_EPOCH:
        assert member is not None
        return _leave(change, member, beat, world)
    if member is None:
        check_size(group, world, "group.consumer.max.size")
    _check_regex(beat, None if member is None else member.metadata)
    if member is not None and member.member_id != beat.member_id:
        member = _replace(change, member, beat.member_id)
    before = Current() if member is None else member.current
    is_new_subscription = _subscribe(change, None if member is None else member.metadata, beat, world)
    member = group.members[beat.member_id]
    is_new_subscription |= _match_regexes(change, beat, world)
    begin_epoch(change, world, is_due=is_new_subscription)
    if is_assignment_due(group, world):
        assign(change, plan(group, world), world.now)
    _reconcile(change, group, member, beat, world, is_new_subscription=is_new_subscription)
    begin_session(group, member, world)
    return _reply(group, member, before, beat, world)


def _check_size(beat: Beat) -> None:
    """Check that the log takes the record of the member, and that the decision on it is short. Raises ApiError."""
    if (count := len(beat.topic_names or ())) > SUBSCRIBED_TOPICS_MAX:
        message = f"the subscription of a member names {count} topics, but must name at most {SUBSCRIBED_TOPICS_MAX}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    protocols = () if beat.classic is None else beat.classic.supported_protocols
    texts = "".join(
        (*(beat.topic_names or ()), beat.topic_regex or "", beat.rack_id or "", *(each[0] for each in protocols))
    )
    size = len(texts.encode()) + sum(len(each[1]) for each in protocols)
    if size > SUBSCRIPTION_BYTES_MAX:
        message = f"the subscription of a member has {size} bytes, but must have at most {SUBSCRIPTION_BYTES_MAX}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _sender(group: ConsumerGroup, beat: Beat) -> ModernMember | None:
    """Return the member that sends the heartbeat, or whose place the sender takes; None if it is new."""
    instance_id = beat.instance_id
    holder_id = None if instance_id is None else group.static_members.get(instance_id)
    if beat.epoch == JOIN_EPOCH:
        if holder_id is None:
            return group.members.get(beat.member_id)
        holder = group.members[holder_id]
        has_left = holder.current.epoch == LEAVE_FOR_A_WHILE_EPOCH
        # A classic consumer that is restarted does not leave, so its successor takes its place.
        if not has_left and beat.classic is None and not holder.is_classic:
            message = f"the member {holder_id} has the group instance id {instance_id}, and has not left"
            raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return holder
    if instance_id is not None and holder_id not in (None, beat.member_id):
        message = f"the group instance id {instance_id} belongs to the member {holder_id}"
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, message)
    member = group.members.get(beat.member_id)
    if member is None or (instance_id is not None and holder_id is None):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {beat.member_id}")
    if beat.epoch > JOIN_EPOCH:
        _check_epoch(member.current, beat)
    return member


def _check_epoch(current: Current, beat: Beat) -> None:
    """Check the member epoch. The previous one counts if the last answer was lost. Raises FENCED_MEMBER_EPOCH."""
    if beat.epoch == current.epoch:
        return
    is_answer_lost = beat.epoch == current.previous_epoch and beat.owned is not None
    if beat.epoch > current.epoch or not is_answer_lost or not _is_within(beat.owned or {}, current.assigned):
        message = f"the member epoch is {beat.epoch}, but must be {current.epoch}; the member must join again"
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_within(reported: Mapping[UUID, Collection[int]], assigned: Owned) -> bool:
    return all(assigned.get(topic_id, {}).keys() >= set(numbers) for topic_id, numbers in reported.items())


def _replace(change: GroupChange, old: ModernMember, member_id: str) -> ModernMember:
    """Let a restarted static member take over what it had under its old member id, at epoch 0."""
    metadata, target, assigned = old.known, old.target, old.current.assigned
    change.remove_member(old.member_id)
    change.write(Kind.MEMBER, member_id, metadata)
    change.write(Kind.TARGET, member_id, target)
    change.write(Kind.CURRENT, member_id, Current(assigned=assigned))
    return change.group.members[member_id]


def _subscribe(change: GroupChange, old: MemberMetadata | None, beat: Beat, world: BeatWorld) -> bool:
    """Store what the heartbeat says about the member; return True if the group needs another assignment for that."""
    group, assignors = change.group, world.settings.assignors
    before = old or MemberMetadata()
    metadata = _updated(before, beat)
    if metadata == old:
        return False
    topics, assignor = group.topics_of(before), chosen_assignor(group.assignors, assignors)
    change.write(Kind.MEMBER, beat.member_id, metadata)
    drop_unused_patterns(change)
    names_changed = metadata.subscribed_topic_names != before.subscribed_topic_names
    has_dropped_regex = bool(before.subscribed_topic_regex) and not metadata.subscribed_topic_regex
    topics_changed = names_changed or has_dropped_regex or group.topics_of(metadata) != topics
    return topics_changed or chosen_assignor(group.assignors, assignors) != assignor


def _updated(before: MemberMetadata, beat: Beat) -> MemberMetadata:
    is_same_timeout = beat.rebalance_timeout_ms == UNCHANGED_TIMEOUT
    names = before.subscribed_topic_names if beat.topic_names is None else tuple(sorted(set(beat.topic_names)))
    return MemberMetadata(
        before.instance_id if beat.instance_id is None else beat.instance_id,
        before.rack_id if beat.rack_id is None else beat.rack_id,
        beat.client_id,
        beat.client_host,
        names,
        before.subscribed_topic_regex if beat.topic_regex is None else beat.topic_regex,
        before.rebalance_timeout_ms if is_same_timeout else beat.rebalance_timeout_ms,
        before.server_assignor if beat.assignor is None else beat.assignor,
        beat.classic,
    )


def _check_regex(beat: Beat, metadata: MemberMetadata | None) -> None:
    """Check the regular expression of a heartbeat unless the member has it already. Raises ApiError."""
    if beat.topic_regex and (metadata is None or metadata.subscribed_topic_regex != beat.topic_regex):
        topic_pattern(beat.topic_regex)


def _match_regexes(change: GroupChange, beat: Beat, world: BeatWorld) -> bool:
    """Match the group's regular expressions if that is due, at once or later; return True if the topics changed."""
    group = change.group
    matching = None if not group.patterns or group.is_matching else _matching_due(group, beat, world)
    if matching is None:
        return False
    if (len(matching.names) + COMPILED_AS_NAMES) * len(matching.patterns) > MATCHED_AT_ONCE_MAX:
        change.wanted_matching = matching
        return False
    begin_matching(group, matching, world)
    found = at_once(resolve(matching.patterns, list(matching.names)))
    return store_matches(change, found, world, matching)


def _matching_due(group: ModernGroup, beat: Beat, world: BeatWorld) -> Matching | None:
    """Return all expressions once the refresh interval is over, or else new ones, or all with the names of new topics.

    If the names of new topics are no longer known, all expressions are matched with all names after a pause.
    """
    topics, may_describe, now_ms = world.topics, beat.may_describe, world.now.steady_ms
    is_old = now_ms - group.regexes_refreshed_ms >= world.settings.regex_refresh_interval_ms
    if group.regexes_matched_ms is None or is_old:
        return Matching(group.patterns, topics.names(), may_describe)
    if unmatched := group.unmatched_patterns():
        return Matching(unmatched, topics.names(), may_describe)
    if group.regexes_version == topics.version():
        return None
    created, pause_ms = topics.created_since(group.regexes_version), MATCHING_PAUSE_MS
    if created is not None:
        pause_ms = min(pause_ms, len(group.patterns) * PAUSE_OF_PATTERN_MS)
    # Without new topics the version is that of deletions and of more partitions, which match nothing else.
    is_without_new = created is not None and not created
    if is_without_new or now_ms - group.regexes_matched_ms < pause_ms:
        return None
    return Matching(group.patterns, topics.names() if created is None else created, may_describe, created is not None)


def begin_matching(group: ModernGroup, matching: Matching, world: World[Any]) -> None:
    """Note the time and the topics with which expressions are matched, if these are all of the group's."""
    if len(matching.patterns) == len(group.patterns):
        group.regexes_version, group.regexes_matched_ms = world.topics.version(), world.now.steady_ms
        if not matching.adds:
            group.regexes_refreshed_ms = world.now.steady_ms


def store_matches(
    change: GroupChange, found: Mapping[str, Sequence[str]], world: World[Any], matching: Matching
) -> bool:
    """Store the topics of regular expressions that are still used; return True if a member's topics changed."""
    group, has_changed = change.group, False
    for pattern, names in found.items():
        known = group.regexes.get(pattern)
        before = () if known is None else known.topics
        topics = tuple(sorted({*filter(matching.may_describe, names), *(before if matching.adds else ())}))
        if pattern in group.patterns and (known is None or topics != before):
            has_changed |= topics != before
            change.write(Kind.REGEX, pattern, ResolvedRegex(topics, world.topics.version(), world.now.wall_ms))
    return has_changed


def plan(group: ConsumerGroup, world: BeatWorld) -> InSteps[Plan]:
    """Return the computation of the group's next target assignment."""
    subscribers, counts = yield from question(group, world.topics)
    assignor = ASSIGNORS[chosen_assignor(group.assignors, world.settings.assignors)]
    return Plan(len(subscribers) + sum(counts.values()), assignor(subscribers, counts))


def _reconcile(
    change: GroupChange,
    group: ConsumerGroup,
    member: ModernMember,
    beat: Beat,
    world: BeatWorld,
    *,
    is_new_subscription: bool,
) -> None:
    """Bring the member nearer to its target assignment."""
    current = member.current
    is_there = current.state is MemberState.STABLE and current.epoch == group.assignment_epoch
    if is_there and not is_new_subscription:
        return
    metadata = member.known
    is_target_new = group.assignment_epoch == group.epoch and not is_new_subscription
    topics = None if is_target_new or group.is_unresolved(metadata) else _subscribed(group, member, world.topics)
    free = partial(group.free, member.member_id)
    found = reconciled(current, Aim(group.assignment_epoch, member.target, beat.owned, topics, free))
    if found is current:
        return
    change.write(Kind.CURRENT, member.member_id, found)
    member.rebalance_deadline_ms = None
    if found.state is MemberState.UNREVOKED:
        member.rebalance_deadline_ms = group.expect(world.now.steady_ms + metadata.rebalance_timeout_ms)


def _subscribed(group: ConsumerGroup, member: ModernMember, topics: Topics) -> frozenset[UUID]:
    """Return the topics that the member has, or is to have, and still subscribes to."""
    names, ids = group.topics_of(member.known), member.current.assigned.keys() | member.target.keys()
    return frozenset(topic_id for topic_id in ids if topics.name_of(topic_id) in names)


def _reply(group: ConsumerGroup, member: ModernMember, before: Current, beat: Beat, world: BeatWorld) -> BeatReply:
    current = member.current
    is_sent = beat.epoch == JOIN_EPOCH or beat.is_full or not current.has_same_partitions(before)
    return BeatReply(
        member_id=member.member_id,
        epoch=current.epoch,
        heartbeat_interval_ms=_interval_ms(group, member, world),
        assignment=current.assigned if is_sent else None,
    )


def _interval_ms(group: ConsumerGroup, member: ModernMember, world: BeatWorld) -> int:
    """Return the time until the member's next heartbeat.

    It is short while the member waits for partitions of others, which nobody consumes from their revocation until that
    heartbeat. It is shorter than usual while changes are likely, because a member learns of them only by its next
    heartbeat. The more members and topics, the longer it is, so that a group sends not many more heartbeats than usual.
    """
    usual_ms = world.settings.heartbeat_interval_ms
    if member.current.state is MemberState.UNRELEASED:
        shortest_ms = max(usual_ms // SOONER, len(group.members) + len(member.target))
    elif _is_change_likely(group, world, usual_ms):
        shortest_ms = max(usual_ms // OFTEN, len(group.members) * 1000 // OFTEN_PER_S_MAX + len(member.target))
    else:
        return usual_ms
    return min(usual_ms, shortest_ms)


def _is_change_likely(group: ConsumerGroup, world: BeatWorld, usual_ms: int) -> bool:
    """True if partitions may soon move between members, because they have lately."""
    passed_ms = world.now.wall_ms - group.assignment_timestamp_ms
    return len(group.members) > 1 and 0 <= passed_ms < LIKELY_INTERVALS * usual_ms


def _leave(change: GroupChange, member: ModernMember, beat: Beat, world: BeatWorld) -> BeatReply:
    if beat.epoch == LEAVE_EPOCH:
        change.notes.append(f"member {member.member_id} left")
        remove(change, [member], world)
    else:
        change.notes.append(f"static member {member.member_id} left for a while")
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.current.assigned.items()}
        away = Current(LEAVE_FOR_A_WHILE_EPOCH, member.current.epoch, MemberState.STABLE, assigned)
        change.write(Kind.CURRENT, member.member_id, away)
        member.rebalance_deadline_ms = None
    return BeatReply(member_id=beat.member_id, epoch=beat.epoch)
