"""Place partitions on brokers: Kafka's assignReplicasToBrokers, with its two random numbers as arguments.

The first replicas go round the brokers from `start_index`, so that leadership is spread. The other replicas follow at a
distance. The distance grows by one each time the first replicas have gone once round all brokers, so that the
partitions of a broker have their other replicas on many brokers. With racks, the brokers are ordered so that racks
alternate, and no rack gets a second replica of a partition before each rack has one (KIP-36).
"""

from collections.abc import Mapping, Sequence


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
