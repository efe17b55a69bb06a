"""The placement of replicas on brokers and log dirs, with their sizes and the free space."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition


class LogDir(NamedTuple):
    """A log dir of a broker."""

    broker: int
    path: str


class Replica(NamedTuple):
    """A replica: its log dir and its size."""

    log_dir: LogDir
    bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of replicas in a cluster: live brokers with their racks, online log dirs, and the replicas there.

    `rows` has the replica list of each partition, preferred leader first, and `leaders` the present leaders. Partitions
    in `left_alone` take space but are not moved, because a replica is offline, out of sync or already moving.
    """

    racks: Mapping[int, str | None]
    spaces: Mapping[LogDir, DiskSpace]
    rows: Mapping[TopicPartition, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int]
    replicas: Mapping[TopicPartition, Mapping[int, Replica]]
    """The replicas by partition and broker."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    internal: Collection[str] = frozenset()
    """Kafka's internal topics."""
    left_alone: Collection[TopicPartition] = frozenset()


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a broker now and after a rebalance; `records_per_s` is the rate of the partitions that it leads."""

    broker: int
    rack: str | None
    replicas: int
    leaders: int
    bytes: int
    bytes_after: int
    records_per_s: float


class LogDirLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a log dir now and after a rebalance.

    `usable_bytes` and `total_bytes` of the disk are -1 if the broker does not report them.
    """

    broker: int
    log_dir: str
    replicas: int
    bytes: int
    bytes_after: int
    usable_bytes: int
    total_bytes: int


def dir_bytes(placement: Placement) -> dict[LogDir, int]:
    """Return the bytes of the replicas in each log dir."""
    found = dict.fromkeys(placement.spaces, 0)
    for replica in _replicas(placement):
        found[replica.log_dir] += replica.bytes
    return found


def by_broker(dirs: Mapping[LogDir, int], brokers: Iterable[int]) -> dict[int, int]:
    """Return for each broker the sum of the bytes of its log dirs."""
    found = dict.fromkeys(brokers, 0)
    for log_dir, size in dirs.items():
        found[log_dir.broker] += size
    return found


def broker_loads(
    placement: Placement, after: Mapping[LogDir, int], rates: Mapping[TopicPartition, float]
) -> list[BrokerLoad]:
    """Return the loads of all live brokers.

    `after` has the bytes of log dirs after the rebalance, and `rates` the records per second of each partition.
    """
    now, then = (by_broker(dirs, placement.racks) for dirs in (dir_bytes(placement), after))
    held = Counter(replica.log_dir.broker for replica in _replicas(placement))
    led: dict[int, list[TopicPartition]] = {broker: [] for broker in placement.racks}
    for partition, leader in placement.leaders.items():
        led.get(leader, []).append(partition)
    return [
        BrokerLoad(
            broker=broker,
            rack=rack,
            replicas=held[broker],
            leaders=len(led[broker]),
            bytes=now[broker],
            bytes_after=then[broker],
            records_per_s=sum((rates.get(partition, 0.0) for partition in led[broker]), 0.0),
        )
        for broker, rack in sorted(placement.racks.items())
    ]


def log_dir_loads(placement: Placement, after: Mapping[LogDir, int]) -> list[LogDirLoad]:
    """Return the loads of all online log dirs; `after` has their bytes after the rebalance."""
    now, held = dir_bytes(placement), Counter(replica.log_dir for replica in _replicas(placement))
    return [
        LogDirLoad(
            broker=each.broker,
            log_dir=each.path,
            replicas=held[each],
            bytes=now[each],
            bytes_after=after[each],
            usable_bytes=space.usable_bytes,
            total_bytes=space.total_bytes,
        )
        for each, space in sorted(placement.spaces.items())
    ]


def _replicas(placement: Placement) -> list[Replica]:
    return [replica for held in placement.replicas.values() for replica in held.values()]
