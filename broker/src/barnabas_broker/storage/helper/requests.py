"""The requests of the broker to its helper process, and the responses.

A pipe carries each of them as a frame: a length, then the pickled request or response.
"""

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_broker.wire.produce import RecordErrors

LENGTH: Final = struct.Struct(">I")
SIGN_OF_LIFE: Final = LENGTH.pack(0)
"""An empty frame: the helper process sends it while it works on a response, to show that it is not stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The rules that decide which records compaction keeps."""

    end_offset: int
    """The offset below which the key map has all keys; records at or above this offset stay unchanged."""
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int] = field(default_factory=dict)
    """The last offset of each active producer, by producer id.

    The batch with this offset stays, because its sequence is needed to detect duplicates after a restart.
    """
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The current epoch, by producer id, of each active producer that has written no batch in that epoch.

    Recovery reads the epoch from the producer's last transaction marker, so compaction keeps this marker.
    """
    unpacked_bytes_max: int


@dataclass(slots=True)
class FilterCounts:
    """The numbers of records and of undecodable batches that compaction met while it wrote one segment."""

    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_not_understood: int = 0


class SourceSegment(NamedTuple):
    """A segment to read: the first `size_bytes` of its `.log` file."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKeys:
    """A request to find the newest offset of each key in [start_offset, end_offset), as far as the map has room."""

    directory: str
    segments: Sequence[SourceSegment]
    start_offset: int
    end_offset: int
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records below `end_offset`.

    Their records are not put into the key map, and the compaction removes them.
    """
    map_bytes_max: int
    load_factor: float
    read_bytes: int
    unpacked_bytes_max: int
    bytes_per_s: float


class KeysMapped(NamedTuple):
    """The response to `MapKeys`. The helper keeps the map of the keys below `end_offset` for `CleanSegments`."""

    end_offset: int
    keys: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSegments:
    """A request to copy the records that compaction keeps from `segments` to one new segment.

    The helper uses the map of keys that it built for the last `MapKeys` request.
    """

    directory: str
    segments: Sequence[SourceSegment]
    rules: RetentionRules
    index_interval_bytes: int
    read_bytes: int
    bytes_per_s: float


class SegmentCleaned(NamedTuple):
    """The response to `CleanSegments`: the `.cleaned` files at `base_offset` are complete and synced."""

    base_offset: int
    size_bytes: int
    bytes_read: int
    counts: FilterCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectBatch:
    """A request to check a client's batch and to compress it with the topic's codec."""

    batch: bytes
    requires_keys: bool
    codec: int | None
    """The codec to which a batch with a different codec is recompressed; None to leave the batch as it is."""
    level: int | None
    unpacked_bytes_max: int
    size_bytes_max: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    keeps_times: bool
    """True if the topic keeps the timestamps of the producer (CreateTime)."""
    headers_max: int = RECORDS_BYTES_MAX
    """The maximum number of record headers in all records of the batch together.

    The event loop checks batches with a lower limit than the helper process.
    """


class Inspected(NamedTuple):
    """The response for a valid batch: the bytes to store (None if unchanged) and the max timestamp for its header."""

    batch: bytes | None
    max_timestamp_ms: int


class Refused(NamedTuple):
    """The response for an invalid batch: an ErrorCode and its message.

    `record_errors` names the invalid records, unless the whole batch is invalid (KIP-467). Only the first 100 invalid
    records have messages; later ones have None. `is_broken` is True if the bytes cannot be parsed as records.
    """

    code: int
    message: str
    record_errors: RecordErrors = ()
    is_broken: bool = False


class Failed(NamedTuple):
    """The response to a request that failed because of the disk, damaged data, a lack of memory or another error."""

    message: str
    sync_failed: bool = False


Request = MapKeys | CleanSegments | InspectBatch
Response = KeysMapped | SegmentCleaned | Inspected | Refused | Failed


def frame(value: object) -> bytes:
    """Return the frame of a request or response."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
