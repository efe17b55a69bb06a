"""The sizes of replicas and the free space of brokers, as DescribeLogDirs reports them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_core.disk_space import DiskSpace
from barnabas_core.log_dir_placement import LogDirLoad
from barnabas_core.topic_partition import TopicPartition


class LogDirContent(NamedTuple):
    """One online log dir: its disk space, and the bytes of each replica that it holds.

    `coming` holds the future replicas, which are copied from another log dir, with the bytes that are copied so far.
    """

    space: DiskSpace
    replicas: Mapping[TopicPartition, int]
    coming: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Disks:
    """The online log dirs of the brokers that answered, by broker and path."""

    log_dirs: Mapping[int, Mapping[str, LogDirContent]]
    replicas: Mapping[int, Mapping[TopicPartition, int]] = field(init=False)
    """The bytes of each replica by broker and partition."""
    sizes: Mapping[TopicPartition, int] = field(init=False)
    """The bytes of the largest replica of each partition."""

    def __post_init__(self) -> None:
        replicas = {
            broker: {which: size for each in contents.values() for which, size in each.replicas.items()}
            for broker, contents in self.log_dirs.items()
        }
        sizes: dict[TopicPartition, int] = {}
        for held in replicas.values():
            for partition, size in held.items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        object.__setattr__(self, "replicas", replicas)
        object.__setattr__(self, "sizes", sizes)

    def loads(self, broker: int) -> list[LogDirLoad]:
        """Return the load of each log dir; a replica that moves between log dirs counts only in its new log dir."""
        contents = self.log_dirs[broker]
        moving = {which for each in contents.values() for which in each.coming}
        loads = []
        for path, each in contents.items():
            sizes = [*(size for which, size in each.replicas.items() if which not in moving)]
            sizes += each.coming.values()
            loads.append(LogDirLoad(path, len(sizes), sizes.count(0), sum(sizes), each.space.usable_bytes))
        return loads

    def to_come_bytes(self, broker: int, partition: TopicPartition) -> int:
        """Return how many bytes the broker's replica of a partition lacks to be as large as the largest replica."""
        held = self.replicas.get(broker, {}).get(partition, 0)
        return max(0, self.sizes.get(partition, 0) - held)

    def room_bytes(self, broker: int) -> int:
        """Return the free bytes of the broker's log dir with the most free bytes, or 0 if the broker did not answer.

        Space that unfinished moves between log dirs will still fill is not counted as free.
        """
        spaces = (each.space for each in self.log_dirs.get(broker, {}).values())
        return max((space.room_bytes - self._coming_bytes(broker, space) for space in spaces), default=0)

    def _coming_bytes(self, broker: int, space: DiskSpace) -> int:
        held = self.replicas.get(broker, {})
        contents = (each for each in self.log_dirs.get(broker, {}).values() if each.space == space)
        return sum(max(0, held.get(which, 0) - done) for each in contents for which, done in each.coming.items())

    @property
    def usual_bytes(self) -> int:
        """The average size of the partitions that are not empty, used as the expected size of an empty partition."""
        filled = [size for size in self.sizes.values() if size]
        return sum(filled) // len(filled) if filled else 1

    def weight(self, partition: TopicPartition) -> int:
        """Return the bytes of a replica, or the expected size if the partition is empty."""
        return self.sizes.get(partition, 0) or self.usual_bytes
