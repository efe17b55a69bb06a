"""The files of a partition by their names, and the batches of a `.log` file by their headers.

Batches have message format 2, which Kafka has written since 0.11.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas_core.topic_partition import TopicPartition

BAD_CRC: Final = "bad-crc"
BAD_HEADER: Final = "bad-header"
TORN_BATCH: Final = "torn-batch"
BAD_RECORDS: Final = "bad-records"
OFFSETS_GO_BACK: Final = "offsets-go-back"
OFFSET_GAP: Final = "offset-gap"
EPOCH_GOES_BACK: Final = "epoch-goes-back"
INDEX_DAMAGED: Final = "index-damaged"
TIME_INDEX_DAMAGED: Final = "time-index-damaged"
TRANSACTION_INDEX_DAMAGED: Final = "transaction-index-damaged"
BAD_MARKER: Final = "bad-marker"
CHECKPOINT_CONTRADICTS: Final = "checkpoint-contradicts"
ENDS_EARLY: Final = "ends-early"
REPLICAS_DIFFER: Final = "replicas-differ"
NO_PARTITION: Final = "no-partition"
UNREADABLE: Final = "unreadable"

KINDS: Final = {
    BAD_CRC: "the CRC-32C of a batch does not match its bytes",
    BAD_HEADER: "a batch has no valid header of message format 2",
    TORN_BATCH: "a batch is incomplete in a closed segment, or is incomplete below the recovery point",
    BAD_RECORDS: "the records of a batch contradict the batch's header (checked only with deep=true)",
    OFFSETS_GO_BACK: "a batch begins below the end of the previous batch",
    OFFSET_GAP: "offsets are missing in a topic that is not compacted",
    EPOCH_GOES_BACK: "a batch has an older leader epoch than the previous batch",
    INDEX_DAMAGED: "an entry of the offset index points to no batch, lies beyond the segment, or is out of order",
    TIME_INDEX_DAMAGED: "an entry of the time index has another timestamp than the batches, or is out of order",
    TRANSACTION_INDEX_DAMAGED: "the transaction index has an entry without an abort marker, or lacks a transaction",
    BAD_MARKER: "a control batch of a transaction is neither a commit nor an abort",
    CHECKPOINT_CONTRADICTS: "the file leader-epoch-checkpoint contradicts the epochs of the batches, or cannot be read",
    ENDS_EARLY: "the log ends below its recovery point or its high watermark",
    REPLICAS_DIFFER: "replicas hold different batches at an offset that is committed in all of them",
    NO_PARTITION: "a file or folder that belongs to no partition",
    UNREADABLE: "a file or folder that cannot be read",
}
"""The meaning of each kind of problem."""


class Problem(NamedTuple):
    """A problem in one of a segment's files, which `suffix` names; `offset` is None if the problem has no offset."""

    kind: str
    suffix: str
    position: int
    offset: int | None
    detail: str


LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS: Final = "cleaner-offset-checkpoint"
STRAY: Final = "-stray"

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)")
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_MARKED_DIR: Final = re.compile(r"[a-zA-Z0-9._-]*-\d+\.[0-9a-f]{32}(-future|-delete|-stray)")
# Producer snapshots, files of a compaction or deletion, temporary files and KRaft's files are no damage.
_OTHER_FILE: Final = re.compile(
    r"\d{20}\.snapshot|\d{20}\.[a-z]+\.(deleted|cleaned|swap)|leader-epoch-checkpoint|partition\.metadata|.+\.tmp"
    r"|\d{20}-\d{10}\.checkpoint(\.deleted|\.part)?|quorum-state"
)
_CLEANING_FILE: Final = re.compile(r"\d{20}\.[a-z]+\.(cleaned|swap)")
_DELETED_LOG: Final = re.compile(r"(\d{20})\.log\.deleted")
_LOG_DIR_FILE: Final = re.compile(
    r"meta\.properties|metadata-copy\.json|[a-z-]+-checkpoint|\.lock|\.kafka_cleanshutdown|\.sync-failed|bootstrap\.checkpoint|.+\.tmp"
)
_LOG_DIR_FOLDER: Final = re.compile(r"lost\+found|remote-log-index-cache")


class SegmentFile(NamedTuple):
    """The base offset and suffix in a name like `00000000000000000042.index`."""

    offset: int
    suffix: str


def segment_file(offset: int, suffix: str) -> str:
    """Return the file name of a segment, like `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; return None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2]) if match else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Parse the name of a partition's folder; return None for other names, such as those that end in `-delete`."""
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match and not marked(name) else None


def marked(name: str) -> str | None:
    """Return the suffix `-future`, `-delete` or `-stray` of a folder's name, or None for any other name."""
    match = _MARKED_DIR.fullmatch(name)
    return match[1] if match else None


def belongs_to_partition(name: str) -> bool:
    """True if a file of this name may be in a partition's folder, in addition to the files of the segments."""
    return _OTHER_FILE.fullmatch(name) is not None


def is_being_cleaned(names: Iterable[str], segments: Sequence[int], clean_until: int) -> bool:
    """True if the files show that the broker may be compacting the partition's log above the offset `clean_until`.

    Compaction makes `.cleaned` and `.swap` files, and deletes segments from the middle of the log. Retention deletes
    only the oldest segments, and truncation only the newest.
    """
    since, until = max(clean_until, min(segments, default=0)), max(segments, default=0)
    return any(
        _CLEANING_FILE.fullmatch(name)
        or ((deleted := _DELETED_LOG.fullmatch(name)) and since <= int(deleted[1]) <= until)
        for name in names
    )


def belongs_to_log_dir(name: str, *, is_folder: bool) -> bool:
    """True if a file or folder of this name may be in a log dir, in addition to the folders of the partitions."""
    return (_LOG_DIR_FOLDER if is_folder else _LOG_DIR_FILE).fullmatch(name) is not None


HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_OFFSET: Final = 12
"""The size in bytes of the header fields base offset and batch length, which the batch length does not count."""
LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OFFSET
CRC_START: Final = 21
MAGIC: Final = 2
CHUNK_BYTES: Final = 4 << 20

Read = Callable[[int, int], bytes]
"""A function that takes a position and a length, and returns these bytes of a file; at the end it returns fewer."""


class Batch(NamedTuple):
    """A batch in a `.log` file; `crc` is the CRC in the header, `computed_crc` the CRC of the bytes."""

    position: int
    base_offset: int
    last_offset: int
    epoch: int
    size_bytes: int
    crc: int
    computed_crc: int
    attributes: int
    max_timestamp_ms: int
    records: int
    producer_id: int


class SegmentExtent(NamedTuple):
    """The facts about a segment that are known before it is read.

    An incomplete batch at the end of an active segment is usually no damage: the batch is being written, or a crash
    tore it. But all batches below the recovery point `flushed_until` were flushed, so an incomplete batch there is
    damage. `has_gaps` is true if compaction may have removed offsets.
    """

    base_offset: int
    size_bytes: int
    is_active: bool
    flushed_until: int
    has_gaps: bool


class Window:
    """A reader of a file that reads ahead in chunks and keeps the last chunk in memory."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start = 0
        self._chunk = memoryview(b"")

    def at(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position` on, fewer at the end of the file."""
        place = position - self._start
        if place < 0 or place + length > len(self._chunk):
            self._chunk = memoryview(self._read(position, max(length, CHUNK_BYTES)))
            self._start, place = position, 0
        return self._chunk[place : place + length]


def walk(window: Window, extent: SegmentExtent, index_positions: Sequence[int]) -> Iterator[Batch | Problem]:
    """Yield the batches and their problems.

    An incomplete batch at the end is not reported if it can be an unfinished write; see SegmentExtent. After damage,
    continue at the next position in `index_positions`, or end if there is none.
    """
    position, next_offset, epoch = 0, extent.base_offset, -1
    while position < extent.size_bytes:
        found = _batch_at(window, position, extent, next_offset)
        if isinstance(found, Problem):
            known = next((each for each in index_positions if position < each < extent.size_bytes), None)
            if known is not None or found.kind != TORN_BATCH or not _may_be_torn(extent, next_offset):
                yield found
            if known is None:
                return
            position, next_offset, epoch = known, -1, -1
            continue
        yield found
        yield from _wrong_with(found, next_offset, epoch, has_gaps=extent.has_gaps or next_offset < 0)
        position += found.size_bytes
        next_offset, epoch = found.last_offset + 1, found.epoch


def _batch_at(window: Window, position: int, extent: SegmentExtent, next_offset: int) -> Batch | Problem:
    left = extent.size_bytes - position
    head = window.at(position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        detail = f"{left} bytes are left, but a batch header has {HEADER_BYTES} bytes"
        return _torn(position, extent, next_offset, detail)
    base_offset, length, epoch, magic, crc, attributes, delta, _, max_timestamp_ms, producer_id, _, _, records = (
        HEADER.unpack(head)
    )
    if magic != MAGIC or length < LENGTH_MIN or delta < 0 or base_offset < 0:
        if not any(head) and _is_zero(window, position, extent.size_bytes):
            return _torn(position, extent, next_offset, f"the last {left} bytes of the file are zero")
        detail = (
            f"the batch header has magic {magic} (allowed: 2), length {length} (allowed: 49 or more), base offset "
            f"{base_offset} (allowed: 0 or more) and last offset delta {delta} (allowed: 0 or more); {left} bytes are "
            "left in the file"
        )
        return Problem(BAD_HEADER, LOG, position, None, detail)
    size_bytes = LENGTH_OFFSET + length
    data = window.at(position, size_bytes) if size_bytes <= left else b""
    if len(data) < size_bytes:
        return _torn(position, extent, next_offset, f"the batch has {size_bytes} bytes, but {left} bytes are left")
    place = (position, base_offset, base_offset + delta, epoch, size_bytes)
    return Batch(*place, crc, crc32c(data[CRC_START:]), attributes, max_timestamp_ms, records, producer_id)


def _torn(position: int, extent: SegmentExtent, next_offset: int, detail: str) -> Problem:
    is_flushed = extent.is_active and not _may_be_torn(extent, next_offset)
    why = f", below the recovery point {extent.flushed_until}" if is_flushed else ""
    return Problem(TORN_BATCH, LOG, position, max(next_offset, 0), detail + why)


def _may_be_torn(extent: SegmentExtent, next_offset: int) -> bool:
    """True if an incomplete batch at `next_offset` can be the effect of a crash instead of damage.

    A crash can leave an incomplete batch only in the active segment, at or above the recovery point.
    """
    return extent.is_active and next_offset >= extent.flushed_until


def _is_zero(window: Window, position: int, end: int) -> bool:
    """True if the rest of the file is zeros, as after a power cut or in a preallocated file."""
    return not any(any(window.at(at, CHUNK_BYTES)) for at in range(position, end, CHUNK_BYTES))


def _wrong_with(batch: Batch, next_offset: int, epoch: int, *, has_gaps: bool) -> Iterator[Problem]:
    offset = batch.base_offset
    if batch.computed_crc != batch.crc:
        detail = f"the header has the CRC {batch.crc:08x}, but the bytes have the CRC {batch.computed_crc:08x}"
        yield Problem(BAD_CRC, LOG, batch.position, offset, detail)
    if offset < next_offset:
        yield Problem(OFFSETS_GO_BACK, LOG, batch.position, offset, f"the base offset should be {next_offset} or more")
    if offset > next_offset and not has_gaps:
        detail = f"{offset - next_offset} offsets are missing from {next_offset} on"
        yield Problem(OFFSET_GAP, LOG, batch.position, offset, detail)
    if batch.epoch < epoch:
        detail = f"the leader epoch {batch.epoch} is lower than epoch {epoch} of the previous batch"
        yield Problem(EPOCH_GOES_BACK, LOG, batch.position, offset, detail)


CODECS: Final = ("", "gzip", "snappy", "lz4", "zstd")
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
DELETE_HORIZON_BIT: Final = 0x40
XERIAL: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
TIMESTAMP_MIN_MS: Final = -(2**63)
_LENGTH: Final = struct.Struct(">i")
_BASE_TIMESTAMP: Final = struct.Struct(">q")
_BASE_TIMESTAMP_PLACE: Final = 27

Decompress = Callable[[str, bytes], bytes]
"""A function from codec and bytes to decompressed bytes, which raises ValueError if they are damaged."""


def wrong_in_records(data: memoryview, batch: Batch, decompress: Decompress) -> str | None:
    """Return the problem with the records of a batch in words, or None if they are sound."""
    try:
        records = _decompressed(bytes(data[HEADER_BYTES:]), batch.attributes & COMPRESSION_MASK, decompress)
        (base_timestamp_ms,) = _BASE_TIMESTAMP.unpack_from(data, _BASE_TIMESTAMP_PLACE)
        return _wrong(records, batch, base_timestamp_ms)
    except (ValueError, IndexError, struct.error) as error:
        return f"the records cannot be decoded: {error}"


def _decompressed(data: bytes, codec: int, decompress: Decompress) -> bytes:
    if codec >= len(CODECS):
        raise ValueError(f"codec {codec} is unknown; allowed: 0 to {len(CODECS) - 1}")
    if not codec:
        return data
    if data.startswith(XERIAL):  # Java clients write snappy in xerial's block format.
        return b"".join(decompress("snappy", block) for block in _xerial_blocks(data))
    return decompress(CODECS[codec], data)


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks, position = [], XERIAL_HEADER_BYTES
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _wrong(records: bytes, batch: Batch, base_timestamp_ms: int) -> str | None:
    """Return the first length, offset, count or timestamp that contradicts the header; keys and values are skipped."""
    position, delta_before, newest_ms, count = 0, -1, TIMESTAMP_MIN_MS, 0
    while position < len(records):
        length, position = varint(records, position)
        end = position + length
        if length <= 0 or end > len(records):
            return f"record {count} has {length} bytes, but {len(records) - position} bytes are left"
        time_delta_ms, position = varint(records, position + 1)
        delta, position = varint(records, position)
        if not delta_before < delta <= batch.last_offset - batch.base_offset:
            return (
                f"record {count} has the offset {batch.base_offset}+{delta}, but the previous record has "
                f"+{delta_before}"
            )
        newest_ms = max(newest_ms, base_timestamp_ms + time_delta_ms)
        delta_before, position, count = delta, end, count + 1
    if count != batch.records:
        return f"the batch has {count} records, but the header says {batch.records}"
    own_times = not batch.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    if own_times and newest_ms > batch.max_timestamp_ms:
        return f"the newest timestamp is {newest_ms}, but the header says {batch.max_timestamp_ms}"
    return None


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the zigzag varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
