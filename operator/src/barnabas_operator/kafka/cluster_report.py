"""The report of `barnabas status`: topics, partitions, groups and lag of a running cluster."""

from dataclasses import dataclass

from barnabas_operator.planning.cluster_state import StrayLog


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """The report of one live broker."""

    broker_id: int
    address: str
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition. Offsets are None if no leader answers; `size_bytes` is the size of the leader's log.

    `lost` says what is known where nobody leads because every replica lacks records.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    lost: str | None = None

    @property
    def state(self) -> str:
        """`offline` without a leader, `under-replicated` while a replica is not in sync, else `ok`."""
        if self.leader is None:
            return "offline"
        return "under-replicated" if set(self.replicas) - set(self.isr) else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic with its partitions in order."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionReport, ...]

    @property
    def records(self) -> int:
        """Offsets between the earliest and the end; fewer records where the topic is compacted."""
        return sum((part.end_offset or 0) - (part.earliest_offset or 0) for part in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of the leaders' copies."""
        return sum(part.size_bytes or 0 for part in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """One member of a group and the partitions it has."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """The lag of a group in one partition.

    `lag` is None if it has committed nothing to the topic, or no broker reports the log's ends.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One consumer group; `members` is None if they are unknown, as in KIP-848 groups."""

    group_id: str
    state: str
    members: tuple[MemberReport, ...] | None
    lags: tuple[LagReport, ...]

    @property
    def lag(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(part.lag or 0 for part in self.lags)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The report of a cluster that `barnabas status` shows."""

    bootstrap: str
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerReport, ...]
    topics: tuple[TopicReport, ...]
    groups: tuple[GroupReport, ...]
    stray_logs: tuple[StrayLog, ...] = ()
    refuses_transactions: bool = False
    """True if `__transaction_state` is an ordinary topic, which an older version of Barnabas could make."""

    def partitions_in(self, state: str) -> int:
        """Return the number of partitions of all topics that are in a state."""
        return sum(part.state == state for topic in self.topics for part in topic.partitions)
