"""Assign partitions to brokers and log dirs.

Brokers are chosen as by Kafka's assignReplicasToBrokers, with its two random numbers as arguments. The first replicas
go round the brokers from `start_index`, so that leadership is spread. The other replicas follow at a distance. The
distance grows by one each time the first replicas have gone once round all brokers, so that the partitions of a broker
have their other replicas on many brokers. With racks, the brokers are ordered so that racks alternate, and no rack gets
a second replica of a partition before each rack has one (KIP-36).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.errors import ApiError, ErrorCode


def assign_replicas(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    start_index: int,
    shift: int,
    racks: Mapping[int, str | None] | None = None,
    first_partition: int = 0,
) -> list[list[int]]:
    """Return the replicas of each partition from `first_partition` on, the preferred leader first.

    `racks` maps each broker to its rack; all brokers with None form one rack. The caller must check that
    `replication_factor` is at most the number of brokers.
    """
    assert 0 < replication_factor <= len(brokers), "the caller must check the replication factor"
    count = len(brokers)
    rounds_before = max(first_partition - 1, 0) // count
    wanted = [
        ((number + start_index) % count, shift + number // count - rounds_before)
        for number in range(first_partition, first_partition + partitions)
    ]
    if racks is None or all(rack is None for rack in racks.values()):
        return [_spread(brokers, first, distance, replication_factor) for first, distance in wanted]
    by_rack = {broker: racks.get(broker) or "" for broker in brokers}
    order = _alternate_racks(by_rack)
    return [_spread_over_racks(order, by_rack, first, distance, replication_factor) for first, distance in wanted]


def start_index_for_added(brokers: Sequence[int], first_replica: int) -> int:
    """Return the number with which `assign_replicas` adds partitions to a topic, as `start_index` and as `shift`.

    The number is the position in `brokers` of `first_replica`, the first replica of the topic's partition 0. If that
    broker is missing, the number is the position of the next higher id, or 0 if no id is higher.
    """
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def _follower(first: int, distance: int, number: int, brokers: int) -> int:
    return (first + 1 + (distance + number) % (brokers - 1)) % brokers


def _spread(brokers: Sequence[int], first: int, distance: int, replicas: int) -> list[int]:
    followers = (_follower(first, distance, number, len(brokers)) for number in range(replicas - 1))
    return [brokers[first], *(brokers[index] for index in followers)]


def _alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers with alternating racks: the lowest id of each rack, then the second lowest, and so on."""
    queues = {rack: sorted(b for b, r in racks.items() if r == rack) for rack in sorted(set(racks.values()))}
    longest = max(map(len, queues.values()))
    return [queue[turn] for turn in range(longest) for queue in queues.values() if turn < len(queue)]


def _spread_over_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, distance: int, replicas: int
) -> list[int]:
    rack_count = len(set(racks.values()))
    chosen, used = [order[first]], {racks[order[first]]}
    number = 0
    while len(chosen) < replicas:
        broker = order[_follower(first, distance * rack_count, number, len(order))]
        number += 1
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
            used.add(racks[broker])
    return chosen


class LogDirLoad(NamedTuple):
    """The partitions and bytes of a log dir; `empty_partitions` is the number of partitions without data."""

    path: str
    partitions: int
    empty_partitions: int
    log_bytes: int
    free_bytes: int


def choose_log_dir(placement: str, dirs: Sequence[LogDirLoad], headroom_bytes: int) -> str:
    """Return the path of the online log dir for a new partition, by the value of `log.dirs.placement`.

    `fewest-partitions` is Kafka's rule: the log dir with the fewest partitions, whatever their size; the first one wins
    a tie. `least-bytes` chooses the log dir with the fewest bytes. An empty partition counts as many bytes as an
    average partition with data, so that many new partitions are spread. A log dir with less than `headroom_bytes` free
    comes last. Raise ApiError(KAFKA_STORAGE_ERROR) if no log dir is online.
    """
    if not dirs:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no log dir is online")
    return _RULES[placement](dirs, headroom_bytes)


def _fewest_partitions(dirs: Sequence[LogDirLoad], _headroom_bytes: int) -> str:
    return min(dirs, key=lambda load: load.partitions).path


def _least_bytes(dirs: Sequence[LogDirLoad], headroom_bytes: int) -> str:
    with_data = sum(load.partitions - load.empty_partitions for load in dirs)
    average = max(1, sum(load.log_bytes for load in dirs) // max(1, with_data))

    def rank(load: LogDirLoad) -> tuple[bool, int, int]:
        expected_bytes = load.log_bytes + average * load.empty_partitions
        return load.free_bytes < headroom_bytes, expected_bytes, load.partitions

    return min(dirs, key=rank).path


_RULES: Final[Mapping[str, Callable[[Sequence[LogDirLoad], int], str]]] = {
    "fewest-partitions": _fewest_partitions,
    "least-bytes": _least_bytes,
}


HEADROOM_BYTES_MAX: Final = 1 << 30
HEADROOM_SHARE: Final = 10
"""The number by which a disk's size is divided to get the space that must remain free.

If the result is above HEADROOM_BYTES_MAX, only HEADROOM_BYTES_MAX must remain free.
"""


class DiskSpace(NamedTuple):
    """The free and the total bytes on the disk of an online log dir; -1 if unreported, as before Kafka 3.3."""

    usable_bytes: int
    total_bytes: int

    @property
    def room_bytes(self) -> int:
        """The bytes that planned replica moves may still use; 0 if the broker does not report the disk's space."""
        if self.usable_bytes < 0 or self.total_bytes < 0:
            return 0
        return max(0, self.usable_bytes - min(HEADROOM_BYTES_MAX, self.total_bytes // HEADROOM_SHARE))
