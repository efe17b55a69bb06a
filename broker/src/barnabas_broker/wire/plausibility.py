"""The check whether batch headers are plausible.

If a header is implausible, the records of the batch are checked, too.
"""

from typing import Final

from barnabas_broker.wire.record_batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_OFFSET, BatchHeader

RECORD_BYTES_MIN: Final = 7
"""The minimum size of a record: one byte each for length, attributes, timestamp, offset, two lengths and header
count."""
COMPRESSED_TO_MAX: Final = 200
"""The largest plausible compression ratio.

Records are usually compressed to a tenth of their size, and rarely to a fiftieth.
"""
TIMESTAMP_MS_MIN: Final = 946_684_800_000
"""The start of the year 2000; earlier timestamps are probably wrong, and retention would delete the records soon."""
AHEAD_MS_MAX: Final = 24 * 3600 * 1000
_BATCH_BYTES_MIN: Final = HEADER_BYTES - LENGTH_OFFSET


def is_implausible(header: BatchHeader, now_ms: int) -> bool:
    """True if the header has impossible timestamps, or too many records for its size.

    The function is hot, because every produced batch is checked.
    """
    largest_ms, count = header.max_timestamp_ms, header.record_count
    if not TIMESTAMP_MS_MIN <= header.base_timestamp_ms <= largest_ms <= now_ms + AHEAD_MS_MAX:
        return True
    if count == 1:
        return header.base_timestamp_ms != largest_ms
    bytes_max = header.length - _BATCH_BYTES_MIN
    if header.attributes & COMPRESSION_MASK:
        bytes_max *= COMPRESSED_TO_MAX
    return count * RECORD_BYTES_MIN > bytes_max
