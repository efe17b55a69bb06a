"""The throttled replicas of a topic: `*`, or pairs of a partition and a broker id (KIP-73)."""

from collections.abc import Sequence
from dataclasses import dataclass

ALL_REPLICAS = "*"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The value of `leader.replication.throttled.replicas` or `follower.replication.throttled.replicas` of a topic."""

    all: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()
    """The pairs of a partition and a broker id."""

    def includes(self, partition: int, broker_id: int) -> bool:
        """True if the partition's replica on the broker is throttled."""
        return self.all or (partition, broker_id) in self.replicas


def parse_throttled_replicas(entries: Sequence[str]) -> ThrottledReplicas:
    """Parse the entries of a topic's throttled replicas: `PARTITION:BROKER`, or `*` for all replicas.

    The entries have already been validated.
    """
    if ALL_REPLICAS in entries:
        return ThrottledReplicas(all=True)
    pairs = (entry.split(":") for entry in entries)
    return ThrottledReplicas(replicas=frozenset((int(partition), int(broker)) for partition, broker in pairs))
