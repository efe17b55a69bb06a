"""What one loading of a partition left out: records that cannot be decoded, and groups that cannot be restored.

Any bytes may be in the log, and what cannot be used is to cost its own entry alone. A million of them are reported in
one line.
"""

import logging
from typing import Final

_logger = logging.getLogger(__name__)

_KEY_BYTES_SHOWN: Final = 64


class LeftOut:
    """Counts them, and remembers the first."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def record(self, key: bytes, error: Exception) -> None:
        """A record that cannot be decoded."""
        self._add(f"key {key[:_KEY_BYTES_SHOWN].hex()}", error)

    def group(self, group_id: str, error: Exception) -> None:
        """A group whose record can be decoded, but describes no group that can be."""
        self._add(f"group {group_id}", error)

    def _add(self, what: str, error: Exception) -> None:
        self.count += 1
        self._first = self._first or f"{what}: {type(error).__name__}: {error}"

    def report(self, partition: int) -> None:
        """Say it once. The records stay in the log until others of their keys replace them."""
        if self.count:
            message = "partition %d: left out %d records that cannot be decoded or restored, the first with %s"
            _logger.error(message, partition, self.count, self._first)
