"""The limit to how full the disk of a log dir may become."""

from typing import Final, NamedTuple

HEADROOM_BYTES_MAX: Final = 1 << 30
HEADROOM_SHARE: Final = 10
"""A plan leaves a tenth of a disk free, or a GiB where that is less."""


class DiskSpace(NamedTuple):
    """The disk of a log dir that is online; -1 where a broker does not report it (before Kafka 3.3)."""

    usable_bytes: int
    total_bytes: int

    @property
    def room_bytes(self) -> int:
        """The bytes that may still be written before the disk is too full; 0 where that is not known."""
        if self.usable_bytes < 0 or self.total_bytes < 0:
            return 0
        return max(0, self.usable_bytes - min(HEADROOM_BYTES_MAX, self.total_bytes // HEADROOM_SHARE))
