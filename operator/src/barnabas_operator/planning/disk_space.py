"""Sizes of replicas, and the room that brokers have for more, by what their log dirs report. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HEADROOM_BYTES_MAX: Final = 1 << 30
HEADROOM_SHARE: Final = 10
"""A move leaves a tenth of a disk free, or a GiB where that is less."""


class Partition(NamedTuple):
    """A partition of a topic, as log dirs hold it."""

    topic: str
    number: int


class DiskSpace(NamedTuple):
    """Of one log dir that is online."""

    usable_bytes: int
    total_bytes: int

    @property
    def room_bytes(self) -> int:
        """The bytes that may still be written before the disk is too full."""
        return self.usable_bytes - min(HEADROOM_BYTES_MAX, self.total_bytes // HEADROOM_SHARE)


@dataclass(frozen=True, slots=True)
class Disks:
    """The log dirs of the brokers that answered, and the bytes of each replica there (by broker, topic and number)."""

    spaces: Mapping[int, tuple[DiskSpace, ...]]
    replicas: Mapping[int, Mapping[Partition, int]]
    sizes: Mapping[Partition, int] = field(init=False)
    """The largest replica of each partition."""

    def __post_init__(self) -> None:
        sizes: dict[Partition, int] = {}
        for held in self.replicas.values():
            for partition, size in held.items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        object.__setattr__(self, "sizes", sizes)

    def to_come_bytes(self, broker: int, partition: Partition) -> int:
        """What a broker has still to copy of a partition."""
        held = self.replicas.get(broker, {}).get(partition, 0)
        return max(0, self.sizes.get(partition, 0) - held)

    def room_bytes(self, broker: int) -> int:
        """The most that one log dir can take; 0 of a broker that did not answer."""
        return max((space.room_bytes for space in self.spaces.get(broker, ())), default=0)

    @property
    def usual_bytes(self) -> int:
        """The average of the partitions that are not empty: an empty one is taken to become like them."""
        filled = [size for size in self.sizes.values() if size]
        return sum(filled) // len(filled) if filled else 1

    def weight(self, partition: Partition) -> int:
        """The bytes that a replica is counted with."""
        return self.sizes.get(partition, 0) or self.usual_bytes
