"""The free space that plans of replica moves leave on the disk of a log dir."""

from typing import Final, NamedTuple

HEADROOM_BYTES_MAX: Final = 1 << 30
HEADROOM_SHARE: Final = 10
"""The divisor for the free space that a plan leaves on a disk: a tenth of the disk, but at most HEADROOM_BYTES_MAX."""


class DiskSpace(NamedTuple):
    """The free and the total bytes on the disk of an online log dir; -1 if unreported, as before Kafka 3.3."""

    usable_bytes: int
    total_bytes: int

    @property
    def room_bytes(self) -> int:
        """The bytes that a plan may still use on the disk; 0 if the broker does not report the disk."""
        if self.usable_bytes < 0 or self.total_bytes < 0:
            return 0
        return max(0, self.usable_bytes - min(HEADROOM_BYTES_MAX, self.total_bytes // HEADROOM_SHARE))
