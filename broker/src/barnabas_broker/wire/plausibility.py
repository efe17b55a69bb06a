"""The plausibility of a client's batch by its header alone: the records of an implausible batch are checked."""

from typing import Final

from barnabas_broker.wire.record_batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_OFFSET, BatchHeader

RECORD_BYTES_MIN: Final = 7
"""The least bytes of a record: one for each of length, attributes, timestamp, offset, two lengths, header count."""
COMPRESSED_TO_MAX: Final = 200
"""Records are compressed to a tenth of their bytes, perhaps to a fiftieth, not to less than a 200th."""
TIMESTAMP_MS_MIN: Final = 946_684_800_000
"""The year 2000: earlier times are no times, and retention would delete the records at its next check."""
AHEAD_MS_MAX: Final = 24 * 3600 * 1000
_BATCH_BYTES_MIN: Final = HEADER_BYTES - LENGTH_OFFSET


def is_implausible(header: BatchHeader, now_ms: int) -> bool:
    """True if the header cannot be right: impossible timestamps, or too many records for its bytes.

    Hot: asked for each batch that is produced.
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
