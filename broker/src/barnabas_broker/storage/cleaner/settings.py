"""The broker's settings for compaction."""

from typing import NamedTuple

from barnabas_core.config.broker_config import BrokerConfig


class CleanerSettings(NamedTuple):
    """The current values of the settings `log.cleaner.*`."""

    is_enabled: bool = True
    backoff_ms: int = 15_000
    map_bytes_max: int = 128 * 1024 * 1024  # The setting is log.cleaner.dedupe.buffer.size.
    load_factor: float = 0.9  # The setting is log.cleaner.io.buffer.load.factor.
    read_bytes: int = 512 * 1024  # The setting is log.cleaner.io.buffer.size.
    bytes_per_s: float = float("inf")  # The setting is log.cleaner.io.max.bytes.per.second.

    @classmethod
    def of(cls, config: BrokerConfig) -> "CleanerSettings":
        """Return the compaction settings of a broker configuration; some settings can change at run time."""
        return cls(
            config.log_cleaner_enable,
            config.log_cleaner_backoff_ms,
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size,
            config.log_cleaner_io_max_bytes_per_second,
        )


BATCH_MEMORY_BYTES: int = 768 * 1024 * 1024
"""The bytes of memory that a helper process needs besides its key map, mainly for the records of the largest batch."""
