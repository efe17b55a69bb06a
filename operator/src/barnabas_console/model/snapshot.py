"""The cluster as one principal sees it at one time, with a row for each topic and group.

A figure that is not known is a word that says why, so that it is never confused with 0.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from barnabas_core.group_lag import by_topic, lag, partitions_read, share_lag
from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import NO_LEADER, PartitionReading


class Unknown(StrEnum):
    """The reason why a figure is not known."""

    NO_RIGHT = "no right"
    NO_COMMIT = "no commit"
    TOPIC_GONE = "topic gone"
    NO_LEADER = "no leader"
    NO_ANSWER = "no answer"
    NOT_YET = "not yet"
    NOT_KEPT = "not kept"
    """The figure that brokers do not have, such as a disk's size in old versions."""


NAMES_MAX: Final = 3
"""The number of members of a partition that a row names."""
Figure = int | Unknown
"""A number, or why it is not known."""


class LogDir(NamedTuple):
    """A log dir of a broker; all sizes are in bytes."""

    path: str
    error: str
    total: Figure
    usable: Figure
    replicas: int


class Certificate(NamedTuple):
    """The certificate of a broker: its last day, the whole days until then, or the problem of the handshake."""

    expires: str = ""
    days: int = 0
    problem: str = ""


class Broker(NamedTuple):
    """A live broker; `log_dirs` are not known without a right to the cluster.

    `certificate` is None for connections in clear.
    """

    broker_id: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    size: Figure
    log_dirs: Sequence[LogDir] | Unknown
    certificate: Certificate | None = None


class Topic(NamedTuple):
    """A topic in the list of all topics; `rate` is in records a second, `size` in bytes of the leaders' logs."""

    name: str
    partitions: int
    replicas: int
    offline: int
    under_replicated: int
    records: Figure
    size: Figure
    rate: Figure
    groups: int
    lag: Figure


class Partition(NamedTuple):
    """A partition of a topic; `held_back` are the offsets that open transactions withhold."""

    partition: int
    leader: Figure
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: Figure
    end: Figure
    held_back: Figure
    size: Figure

    @property
    def state(self) -> str:
        """The state: `offline` without a leader, `under-replicated` if a replica is not in sync, otherwise `ok`."""
        if isinstance(self.leader, Unknown):
            return "offline"
        return "under-replicated" if set(self.replicas) - set(self.isr) else "ok"


class Member(NamedTuple):
    """A member of a group, and its assigned partitions; None if its assignment has a format of its own."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None
    epoch: int | None = None
    """The epoch of the member, or None in a classic group."""


class GroupSeen(NamedTuple):
    """A group as its coordinator describes it; `committed` may be the reason why the offsets are not known."""

    group_id: str
    group_type: str
    state: str
    coordinator: int
    members: Sequence[Member] | Unknown
    committed: Mapping[TopicPartition, int] | Unknown
    epoch: int | None = None
    """The epoch of the group, or None for a classic group."""
    lags: Mapping[TopicPartition, int] | None = None
    """The lags that the coordinator of a share group reports, or None for other groups."""


class GroupLag(NamedTuple):
    """The place of a group in one partition; `client_id` has those of the members that read it."""

    topic: str
    partition: int
    committed: Figure
    end: Figure
    lag: Figure
    client_id: str | None


class Group(NamedTuple):
    """A group in the list of all groups."""

    group_id: str
    group_type: str
    state: str
    members: Figure
    topics: int
    lag: Figure
    coordinator: int


class Reassignment(NamedTuple):
    """A partition whose replicas move to other brokers, and the brokers that get and lose one."""

    where: TopicPartition
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Moving(NamedTuple):
    """A replica that moves to a broker, or to another log dir of its broker; `left` is in bytes of the leader's log."""

    topic: str
    partition: int
    broker_id: int
    removing: tuple[int, ...]
    """The brokers that lose a replica then; none for a move between log dirs."""
    left: Figure


class Leaderless(NamedTuple):
    """A partition without a leader, and why."""

    topic: str
    partition: int
    why: str


class Seen(NamedTuple):
    """The answers to one round of requests; times are in seconds of a clock that never goes back."""

    at_s: float
    cluster_id: str
    brokers: Sequence[Broker]
    partitions: Mapping[TopicPartition, PartitionReading]
    sizes: Mapping[tuple[int, str, int], int] | Unknown
    groups: Mapping[str, GroupSeen]
    failures: Sequence[str]
    """The requests that failed in this round, as sentences."""
    reassignments: Sequence[Reassignment] | Unknown = ()
    futures: Mapping[tuple[int, str, int], int] = {}
    """The sizes of copies in another log dir of the same broker, in bytes, as in `sizes`."""
    eligible: Mapping[TopicPartition, tuple[int, ...]] = {}
    """The eligible leader replicas (KIP-966) of partitions without a leader, where brokers report them."""


class Snapshot:
    """A round of requests, with the rows that pages show. It never changes, so many pages may read it."""

    def __init__(self, seen: Seen, before: "Snapshot | None" = None) -> None:
        self.seen: Final = seen
        self._of_topic = by_topic(seen.partitions)
        self.lags: Final = {group_id: tuple(_lags(each, self)) for group_id, each in seen.groups.items()}
        self.groups: Final = tuple(_group(seen.groups[each], self.lags[each]) for each in sorted(seen.groups))
        self.readers: Final = _readers(self.lags)
        self.topics: Final = tuple(_topic(each, self, before) for each in sorted(self._of_topic))
        self.moving: Final = _moving(seen)
        self.leaderless: Final = tuple(_leaderless(seen))
        self.away: Final = _away(seen)
        """The brokers that are not live and have replicas, with the number of these replicas."""

    def partitions_of(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of a topic in order; none if the topic does not exist."""
        return self._of_topic.get(topic, ())

    def partition(self, where: TopicPartition) -> Partition:
        """Return the row of a partition that exists."""
        found = self.seen.partitions[where]
        without = Unknown.NO_LEADER if found.leader == NO_LEADER else Unknown.NO_ANSWER
        return Partition(
            partition=where.partition,
            leader=Unknown.NO_LEADER if found.leader == NO_LEADER else found.leader,
            replicas=found.replicas,
            isr=found.isr,
            start=without if found.oldest is None else found.oldest,
            end=without if found.end is None else found.end,
            held_back=without if found.held_back is None else found.held_back,
            size=self._size(where, found.leader),
        )

    def held_back(self) -> dict[TopicPartition, int]:
        """Return the number of offsets that open transactions withhold, by partition where there are some."""
        found = {where: each.held_back for where, each in self.seen.partitions.items()}
        return {where: count for where, count in found.items() if count}

    def _size(self, where: TopicPartition, leader: int) -> Figure:
        if isinstance(self.seen.sizes, Unknown):
            return self.seen.sizes
        if leader == NO_LEADER:
            return Unknown.NO_LEADER
        return self.seen.sizes.get((leader, *where), Unknown.NO_ANSWER)


def total(figures: Iterable[Figure]) -> Figure:
    """Return the sum; if a figure is not known, the sum is not known for the same reason."""
    found = 0
    for each in figures:
        if isinstance(each, Unknown):
            return each
        found += each
    return found


def _topic(name: str, snapshot: Snapshot, before: Snapshot | None) -> Topic:
    rows = [snapshot.partition(each) for each in snapshot.partitions_of(name)]
    readers = snapshot.readers.get(name, {})
    return Topic(
        name=name,
        partitions=len(rows),
        replicas=max((len(each.replicas) for each in rows), default=0),
        offline=sum(each.state == "offline" for each in rows),
        under_replicated=sum(each.state == "under-replicated" for each in rows),
        records=total(_records(each) for each in rows),
        size=total(each.size for each in rows),
        rate=_rate(name, rows, snapshot, before),
        groups=len(readers),
        lag=total(readers.values()),
    )


def _records(row: Partition) -> Figure:
    if isinstance(row.start, Unknown) or isinstance(row.end, Unknown):
        return row.end if isinstance(row.end, Unknown) else Unknown.NO_ANSWER
    return row.end - row.start


def _rate(name: str, rows: Sequence[Partition], snapshot: Snapshot, before: Snapshot | None) -> Figure:
    if before is None or len(before.partitions_of(name)) != len(rows):
        return Unknown.NOT_YET
    now, then = (
        total(each.end for each in rows),
        total(before.partition(each).end for each in before.partitions_of(name)),
    )
    if isinstance(now, Unknown) or isinstance(then, Unknown):
        return now if isinstance(now, Unknown) else Unknown.NOT_YET
    return round(max(0, now - then) / max(0.001, snapshot.seen.at_s - before.seen.at_s))


def _readers(lags: Mapping[str, Sequence[GroupLag]]) -> Mapping[str, Mapping[str, Figure]]:
    """Return by topic the groups that read it, each with its lag there."""
    found: dict[str, dict[str, list[Figure]]] = defaultdict(lambda: defaultdict(list))
    for group_id, rows in lags.items():
        for each in rows:
            found[each.topic][group_id].append(each.lag)
    return {topic: {group_id: total(some) for group_id, some in groups.items()} for topic, groups in found.items()}


def _lags(group: GroupSeen, snapshot: Snapshot) -> Iterator[GroupLag]:
    """Yield a row for each partition in which the group has a lag, a committed offset or an assigned member."""
    members = () if isinstance(group.members, Unknown) else group.members
    owners: dict[TopicPartition, list[str]] = defaultdict(list)
    for each in members:
        for where in each.partitions or ():
            owners[where].append(each.client_id)
    known = {} if isinstance(group.committed, Unknown) else group.committed
    counted = set(partitions_read(known, snapshot.partitions_of))
    for where in sorted({*known, *counted, *owners}):
        committed: Figure = known.get(where, Unknown.NO_COMMIT)
        if isinstance(group.committed, Unknown):
            committed = group.committed
        end, behind = _behind(where, committed, snapshot, is_counted=where in counted)
        if group.lags is not None and where in snapshot.seen.partitions:
            partition = snapshot.seen.partitions[where]
            reported = share_lag(group.lags.get(where), partition.oldest, partition.end)
            behind = Unknown.NOT_YET if reported is None else reported
        yield GroupLag(*where, committed, end, behind, _names(owners.get(where, ())))


def _names(client_ids: Sequence[str]) -> str | None:
    """Return the client ids as a short text, because hundreds of members of a share group may read one partition."""
    more = f" and {len(client_ids) - NAMES_MAX} more" if len(client_ids) > NAMES_MAX else ""
    return f"{', '.join(sorted(client_ids)[:NAMES_MAX])}{more}" if client_ids else None


def _behind(where: TopicPartition, committed: Figure, snapshot: Snapshot, *, is_counted: bool) -> tuple[Figure, Figure]:
    """Return the end of the log and the lag. Without a commit in a topic that the group reads, all records count."""
    if where not in snapshot.seen.partitions:
        return Unknown.TOPIC_GONE, Unknown.TOPIC_GONE
    row = snapshot.partition(where)
    if isinstance(row.end, Unknown) or isinstance(row.start, Unknown):
        return row.end, row.end if isinstance(row.end, Unknown) else Unknown.NO_ANSWER
    if not is_counted:
        return row.end, committed if isinstance(committed, Unknown) else Unknown.NO_COMMIT
    return row.end, lag(None if isinstance(committed, Unknown) else committed, row.start, row.end)


def _group(seen: GroupSeen, lags: Sequence[GroupLag]) -> Group:
    behind: Figure = total(each.lag for each in lags)
    if isinstance(seen.committed, Unknown):
        behind = seen.committed
    elif not lags:
        behind = Unknown.NO_COMMIT
    return Group(
        group_id=seen.group_id,
        group_type=seen.group_type,
        state=seen.state,
        members=seen.members if isinstance(seen.members, Unknown) else len(seen.members),
        topics=len({each.topic for each in lags}),
        lag=behind,
        coordinator=seen.coordinator,
    )


def _moving(seen: Seen) -> tuple[Moving, ...] | Unknown:
    if isinstance(seen.reassignments, Unknown):
        return seen.reassignments

    def left(broker_id: int, leader: int, where: TopicPartition, copied: int | None) -> Figure:
        if isinstance(seen.sizes, Unknown):
            return seen.sizes
        if leader == NO_LEADER:
            return Unknown.NO_LEADER
        whole = seen.sizes.get((leader, *where))
        have = seen.sizes.get((broker_id, *where)) if copied is None else copied
        return Unknown.NO_ANSWER if whole is None or have is None else max(0, whole - have)

    leaders = {each: found.leader for each, found in seen.partitions.items()}
    to_brokers = [
        Moving(*each.where, broker_id, each.removing, left(broker_id, leaders[each.where], each.where, None))
        for each in seen.reassignments
        if each.where in leaders
        for broker_id in each.adding
    ]
    to_log_dirs = [
        Moving(topic, partition, broker_id, (), left(broker_id, broker_id, TopicPartition(topic, partition), copied))
        for (broker_id, topic, partition), copied in sorted(seen.futures.items())
    ]
    return (*to_brokers, *to_log_dirs)


def _leaderless(seen: Seen) -> Iterator[Leaderless]:
    brokers = {each.broker_id: each for each in seen.brokers}
    for where, found in sorted(seen.partitions.items()):
        if found.leader == NO_LEADER:
            yield Leaderless(*where, why_no_leader(found, seen.eligible.get(where, ()), brokers))


def _away(seen: Seen) -> Mapping[int, int]:
    live = {each.broker_id for each in seen.brokers}
    replicas = leaders_and_replicas(seen.partitions.values())[1]
    return {each: replicas[each] for each in sorted(replicas) if each not in live}


def why_no_leader(found: PartitionReading, eligible: Sequence[int], brokers: Mapping[int, Broker]) -> str:
    """Return in sentences why a partition has no leader: where the replicas with all records are, and the others."""
    whole = tuple(dict.fromkeys((*found.isr, *eligible))) or found.replicas
    away = [each for each in whole if each not in brokers]
    broken = [each for each in whole if each in brokers and _has_broken_log_dir(brokers[each])]
    lacking = [each for each in found.replicas if each not in whole and each in brokers]
    is_known = bool(found.isr or eligible)
    about = "replicas that may have all records" if is_known else "replicas"
    parts = []
    if away:
        parts.append(f"The {about} are on brokers that are away: {_listed(away)}.")
    if broken:
        parts.append(f"A log dir has failed on brokers with {about}: {_listed(broken)}.")
    if not parts:
        why = "the next leader is not elected yet" if is_known else "no replica is known to have all records"
        parts.append(f"The brokers with {about} are alive: {_listed(whole)}; {why}.")
    if eligible:
        parts.append(f"One of the eligible leader replicas (ELR) must come back: {_listed(eligible)}.")
    if lacking:
        parts.append(
            f"The replicas on brokers {_listed(lacking)} are alive, but were not in sync, and may lack records."
        )
    return " ".join(parts)


def _has_broken_log_dir(broker: Broker) -> bool:
    return not isinstance(broker.log_dirs, Unknown) and any(each.error for each in broker.log_dirs)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def leaders_and_replicas(partitions: Iterable[PartitionReading]) -> tuple[Counter[int], Counter[int]]:
    """Return by broker the number of partitions that it leads, and the number of its replicas."""
    leads, replicas = Counter[int](), Counter[int]()
    for each in partitions:
        leads[each.leader] += 1
        replicas.update(each.replicas)
    return leads, replicas


def is_hidden(topic: str) -> bool:
    """True if the topic belongs to the brokers themselves, so that lists leave it out unless it is asked for."""
    return topic.startswith("__")
