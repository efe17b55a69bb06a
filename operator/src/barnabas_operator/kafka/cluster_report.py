"""The report of `barnabas status`: topics, partitions, groups and lag of a running cluster."""

from dataclasses import dataclass

from barnabas_operator.planning.cluster_state import StrayLog


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A live broker in the report."""

    broker_id: int
    address: str
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition in the report.

    Offsets are None if no leader answers. `size_bytes` is the size of the leader's log. `lost` describes the loss
    if the partition is offline because every replica has lost records; otherwise it is None.
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
        """The state: `offline` without a leader, `under-replicated` if a replica is not in sync, otherwise `ok`."""
        if self.leader is None:
            return "offline"
        return "under-replicated" if set(self.replicas) - set(self.isr) else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic in the report, with its partitions in order."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionReport, ...]

    @property
    def records(self) -> int:
        """The number of offsets in the logs of all partitions. A compacted topic has fewer records than offsets."""
        return sum((part.end_offset or 0) - (part.earliest_offset or 0) for part in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The size of the leaders' logs in bytes."""
        return sum(part.size_bytes or 0 for part in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """A member of a group, and its assigned partitions."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """The lag of a group in one partition.

    `lag` is None if the group has committed nothing to the topic, or no broker reports the log's ends.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A consumer group of the classic or the consumer protocol; `members` is None if they are unknown."""

    group_id: str
    type: str
    state: str
    members: tuple[MemberReport, ...] | None
    lags: tuple[LagReport, ...]

    @property
    def lag(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(part.lag or 0 for part in self.lags)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The report that `barnabas status` shows."""

    bootstrap: str
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerReport, ...]
    topics: tuple[TopicReport, ...]
    groups: tuple[GroupReport, ...]
    stray_logs: tuple[StrayLog, ...] = ()
    refuses_transactions: bool = False
    """True if brokers refuse transactions, because `__transaction_state` lacks cleanup.policy=compact."""

    def partitions_in(self, state: str) -> int:
        """Return the number of partitions in `state`, which is `offline`, `under-replicated` or `ok`."""
        return sum(part.state == state for topic in self.topics for part in topic.partitions)
