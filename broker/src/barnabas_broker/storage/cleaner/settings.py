"""The broker's settings of compaction."""

from typing import NamedTuple

from barnabas_core.config.broker_config import BrokerConfig


class CleanerSettings(NamedTuple):
    """The settings `log.cleaner.*` that are in force."""

    is_enabled: bool = True
    backoff_ms: int = 15_000
    map_bytes_max: int = 128 * 1024 * 1024  # dedupe.buffer.size
    load_factor: float = 0.9  # io.buffer.load.factor
    read_bytes: int = 512 * 1024  # io.buffer.size
    bytes_per_s: float = float("inf")  # io.max.bytes.per.second

    @classmethod
    def of(cls, config: BrokerConfig) -> "CleanerSettings":
        """Return the settings at this moment; some change while the broker runs."""
        return cls(
            config.log_cleaner_enable,
            config.log_cleaner_backoff_ms,
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size,
            config.log_cleaner_io_max_bytes_per_second,
        )


BATCH_MEMORY_BYTES: int = 768 * 1024 * 1024
"""The memory of a helper process beside its map of keys: Python, and the largest batch, packed and unpacked."""
