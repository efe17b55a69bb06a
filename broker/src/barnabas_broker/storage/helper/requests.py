"""The requests of the broker to its helper process, and the responses. They go through a pipe, pickled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_broker.wire.produce import RecordErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The rules by which a round of compaction keeps records."""

    end_offset: int
    """The end of the offsets whose keys are mapped; later records stay unchanged."""
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int] = field(default_factory=dict)
    """The last offset of each active producer, by producer id.

    Its batch stays: the broker needs the sequence in it to recognize the producer's duplicates after a restart.
    """
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The epoch of each active producer without such a batch, by producer id. A marker with this epoch stays."""
    unpacked_bytes_max: int


@dataclass(slots=True)
class FilterCounts:
    """The numbers of records read and kept."""

    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_not_understood: int = 0


class SourceSegment(NamedTuple):
    """A segment to be read; `size_bytes` of its `.log` belong to it."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKeys:
    """Find the newest offset of each key in [start_offset, end_offset), as far as the map holds them."""

    directory: str
    segments: Sequence[SourceSegment]
    start_offset: int
    end_offset: int
    aborted: Sequence[AbortedTransaction] = ()
    """The transactions with records below `end_offset`: these do not count, and go."""
    map_bytes_max: int
    load_factor: float
    read_bytes: int
    unpacked_bytes_max: int
    bytes_per_s: float


class KeysMapped(NamedTuple):
    """The map of every key below `end_offset` is kept for the `CleanSegments` that follow, from the log's start on."""

    end_offset: int
    keys: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSegments:
    """Write one segment with the kept records of these segments, by the key map of the last `MapKeys`."""

    directory: str
    segments: Sequence[SourceSegment]
    rules: RetentionRules
    index_interval_bytes: int
    read_bytes: int
    bytes_per_s: float


class SegmentCleaned(NamedTuple):
    """`.cleaned` files at the first old segment's base offset are whole and synced."""

    base_offset: int
    size_bytes: int
    bytes_read: int
    counts: FilterCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectBatch:
    """Check a client's batch, and give it another codec."""

    batch: bytes
    requires_keys: bool
    codec: int | None
    """The codec of the topic; None if the batch keeps its own."""
    level: int | None
    unpacked_bytes_max: int
    size_bytes_max: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    keeps_times: bool
    """The largest number of headers of all records; a caller with little time sets it low, and asks the helper."""
    headers_max: int = RECORDS_BYTES_MAX
    """The largest number of headers of all records; a caller with little time sets it low and asks the helper."""


class Inspected(NamedTuple):
    """The batch in the form to store, None if it is unchanged, and the max timestamp for its header."""

    batch: bytes | None
    max_timestamp_ms: int


class Refused(NamedTuple):
    """The client's batch is at fault: an ErrorCode and why.

    `record_errors` names the records at fault where it is not the batch as a whole (KIP-467): number, and why, which
    is None where it is said often enough. `is_broken`: the bytes are not records at all.
    """

    code: int
    message: str
    record_errors: RecordErrors = ()
    is_broken: bool = False


class Failed(NamedTuple):
    """The request could not be done: the disk, damage, memory."""

    message: str
    sync_failed: bool = False


Request = MapKeys | CleanSegments | InspectBatch
Response = KeysMapped | SegmentCleaned | Inspected | Refused | Failed
