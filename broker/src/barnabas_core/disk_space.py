"""The free space that must remain on the disk of a log dir when replica moves are planned."""

from typing import Final, NamedTuple

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
