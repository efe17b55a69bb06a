"""The helper process for long work: compaction and the checks of batches.

A pipe carries the requests of the broker, and the responses, as frames: a length, then the pickled request or response.
"""

import asyncio
import logging
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from barnabas_broker.storage.segments.indexes import AbortedTransaction
from barnabas_broker.wire.produce import RecordErrors
from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, BrokenCompression, Codec
from barnabas_broker.wire.records import BrokenRecords, decompress, read_varint
from barnabas_core.clock import Cancellable, Timers

RECORDS_BYTES_MAX: Final = 100 * 1024 * 1024
"""The largest decompressed size of a batch, equal to the default of socket.request.max.bytes."""

RECORDS_MAX: Final = 1_000_000
"""The largest number of records in a batch.

RECORDS_BYTES_MAX alone would allow so many tiny records that their parsing would need gigabytes of memory.
"""

WalkedRecord = tuple[int, int, int, int, int, bytes | None, bool]
"""A record as a tuple, which is cheaper to create than an object.

The fields are its start, the position after its timestamp and its end (in the decompressed records), the timestamp
delta, the offset delta, the key, and whether the record has a value.
"""

_NULL: Final = 1
"""The varint for the length of a null value (-1)."""


def unpacked_records(batch: bytes, start: int, header: BatchHeader, bytes_max: int) -> tuple[bytes, list[WalkedRecord]]:
    """Return the decompressed bytes of the batch at byte `start`, and the parsed records.

    Raises BrokenRecords if the records are invalid.
    """
    if header.compression != Codec.NONE and not header.record_count:
        return b"", []
    data, position, end = unpacked(batch, start, header, bytes_max)
    return data, walk_records(data, position, end, header.record_count)


def unpacked(batch: bytes, start: int, header: BatchHeader, bytes_max: int) -> tuple[bytes, int, int]:
    """Decompress the batch at byte `start`; return a buffer, and where in the buffer the records begin and end.

    Raises BrokenRecords if the records cannot be decompressed.
    """
    end = start + header.size_bytes
    if header.compression == Codec.NONE:
        return batch, start + HEADER_BYTES, end
    try:
        data = bytes(decompress(header.compression, memoryview(batch)[start + HEADER_BYTES : end], bytes_max))
    except BrokenCompression as error:
        raise BrokenRecords(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from None
    return data, 0, len(data)


def walk_records(data: bytes, position: int, end: int, count: int) -> list[WalkedRecord]:
    """Return the `count` parsed records in `data[position:end]`. Raises BrokenRecords if the records are invalid."""
    if count > RECORDS_MAX:
        raise BrokenRecords(f"the batch has {count} records; at most {RECORDS_MAX} are allowed")
    walked: list[WalkedRecord] = []
    previous_delta = -1
    add: Callable[[WalkedRecord], None] = walked.append
    try:
        while position < end:
            start = position
            length, position = read_varint(data, position)
            record_end = position + length
            timestamp_delta, rest = read_varint(data, position + 1)
            byte = data[rest]
            position = rest + 1
            offset_delta = byte >> 1
            if byte > 0x7F or byte & 1:
                offset_delta, position = read_varint(data, rest)
            key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key_end = position + key_length
                key = data[position:key_end]
                position = key_end
            if position >= record_end or offset_delta <= previous_delta:
                raise BrokenRecords(
                    f"record {len(walked)} has an offset out of order, or a key that is longer than the record"
                )
            add((start, rest, record_end, timestamp_delta, offset_delta, key, data[position] != _NULL))
            position, previous_delta = record_end, offset_delta
    except IndexError:
        raise BrokenRecords(f"record {len(walked)} ends after the end of the batch") from None
    if position != end or len(walked) != count:
        raise BrokenRecords(
            f"the batch header announces {count} records, but {len(walked)} records were found, which end "
            f"{position - end} bytes after the end of the batch"
        )
    return walked


LENGTH: Final = struct.Struct(">I")
SIGN_OF_LIFE: Final = LENGTH.pack(0)
"""An empty frame: the helper process sends it while it works on a response, to show that it is not stuck."""


class RetentionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that decide which records compaction keeps."""

    end_offset: int
    """The offset below which the key map has all keys; records at or above this offset stay unchanged."""
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int] = msgspec.field(default_factory=dict)
    """The last offset of each active producer, by producer id.

    The batch with this offset stays, because its sequence is needed to detect duplicates after a restart.
    """
    epochs: Mapping[int, int] = msgspec.field(default_factory=dict)
    """The current epoch, by producer id, of each active producer that has written no batch in that epoch.

    Recovery reads the epoch from the producer's last transaction marker, so compaction keeps this marker.
    """
    unpacked_bytes_max: int


class FilterCounts(msgspec.Struct):
    """The numbers of records and of undecodable batches that compaction met while it wrote one segment."""

    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_not_understood: int = 0


class SourceSegment(NamedTuple):
    """A segment to read: the first `size_bytes` of its `.log` file."""

    base_offset: int
    size_bytes: int


class MapKeys(msgspec.Struct, frozen=True, kw_only=True):
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


class KeysMapped(msgspec.Struct, frozen=True):
    """The response to `MapKeys`. The helper keeps the map of the keys below `end_offset` for `CleanSegments`."""

    end_offset: int
    keys: int
    records: int


class CleanSegments(msgspec.Struct, frozen=True, kw_only=True):
    """A request to copy the records that compaction keeps from `segments` to one new segment.

    The helper uses the map of keys that it built for the last `MapKeys` request.
    """

    directory: str
    segments: Sequence[SourceSegment]
    rules: RetentionRules
    index_interval_bytes: int
    read_bytes: int
    bytes_per_s: float


class SegmentCleaned(msgspec.Struct, frozen=True):
    """The response to `CleanSegments`: the `.cleaned` files at `base_offset` are complete and synced."""

    base_offset: int
    size_bytes: int
    bytes_read: int
    counts: FilterCounts


class InspectBatch(msgspec.Struct, frozen=True, kw_only=True):
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


class Inspected(msgspec.Struct, frozen=True):
    """The response for a valid batch: the bytes to store (None if unchanged) and the max timestamp for its header."""

    batch: bytes | None
    max_timestamp_ms: int


class Refused(msgspec.Struct, frozen=True):
    """The response for an invalid batch: an ErrorCode and its message.

    `record_errors` names the invalid records, unless the whole batch is invalid (KIP-467). Only the first 100 invalid
    records have messages; later ones have None. `is_broken` is True if the bytes cannot be parsed as records.
    """

    code: int
    message: str
    record_errors: RecordErrors = ()
    is_broken: bool = False


class Failed(msgspec.Struct, frozen=True):
    """The response to a request that failed because of the disk, damaged data, a lack of memory or another error."""

    message: str
    sync_failed: bool = False


Request = MapKeys | CleanSegments | InspectBatch
Response = KeysMapped | SegmentCleaned | Inspected | Refused | Failed


def frame(value: object) -> bytes:
    """Return the frame of a request or response."""
    import pickle  # It takes 0.6 MB, and many brokers never need a helper.

    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


_logger: Final = logging.getLogger(__name__)
WORKER_COMMAND: Final = (sys.executable, "-m", "barnabas_broker.storage.helper_worker")
READ_BYTES: Final = 1 << 20
IDLE_S: Final = 60.0
"""The time in seconds without requests after which the helper process is stopped, to free 20 MB of memory."""


class HelperDied(Exception):
    """The error if the helper process ends before it has answered. The next request starts another process."""


class Helper:
    """A helper process that answers requests one at a time, in their order."""

    def __init__(
        self,
        timers: Timers,
        memory_bytes_max: Callable[[], int],
        idle_s: float = IDLE_S,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """Create the helper without a process. `memory_bytes_max` returns the memory limit of each new process."""
        self.starts = 0
        """The number of processes started."""
        self.signs_of_life = 0
        """The number of times that the helper process has sent `SIGN_OF_LIFE`, to show that it is not stuck."""
        self._timers = timers
        self._idle_s = idle_s
        self._memory_bytes_max = memory_bytes_max
        self._command = command
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._requests = 0
        self._idle_timer: Cancellable | None = None

    @property
    def process_id(self) -> int | None:
        """The id of the helper process; None if no process is running."""
        return self._running.process.pid if self._running else None

    async def request(self, request: Request) -> Response:
        """Return the response of the helper process, which is started if necessary.

        Raises HelperDied if the process ends before it has answered, OSError if no process can be started.
        """
        self._requests += 1
        self._not_idle()
        try:
            running = await self._start()
            return await running.answer(request)
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle_timer = self._timers.call_later(self._idle_s, self._end)

    async def stop(self) -> None:
        """Kill the process, even during a request, and wait until it has ended."""
        self._not_idle()
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            await running.ended

    def _not_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    async def _start(self) -> "_Running":
        async with self._starting:
            if self._running is None or self._running.ended.done():
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(self._memory_bytes_max()),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=READ_BYTES,
                )
                self._running = _Running(process, self._lives)
                self.starts += 1
            return self._running

    def _lives(self) -> None:
        self.signs_of_life += 1


class _Running:
    """A helper process. The task `ended` is done when the process has ended."""

    def __init__(self, process: asyncio.subprocess.Process, lives: Callable[[], None]) -> None:
        self.process = process
        self._lives = lives
        self._waiting: deque[asyncio.Future[Response]] = deque()
        self.ended = asyncio.create_task(self._take_answers())

    async def answer(self, request: Request) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        assert self.process.stdin is not None, "the helper process must have a pipe as standard input"
        self.process.stdin.write(frame(request))
        return await answer

    def close(self) -> None:
        """Close the standard input of the process, which then ends."""
        assert self.process.stdin is not None, "the helper process must have a pipe as standard input"
        self.process.stdin.close()

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()

    async def _take_answers(self) -> None:
        import pickle

        assert self.process.stdout is not None, "the helper process must have a pipe as standard output"
        try:
            while True:
                (length,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
                if not length:
                    self._lives()
                    continue
                response = cast("Response", pickle.loads(await self.process.stdout.readexactly(length)))
                answer = self._waiting.popleft()
                if not answer.done():  # The caller may have cancelled its request.
                    answer.set_result(response)
        except asyncio.IncompleteReadError:
            pass
        code = await self.process.wait()
        if self._waiting:
            _logger.warning(
                "the helper process %d ended with exit code %d before it had answered all requests",
                self.process.pid,
                code,
            )
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(HelperDied(f"the helper process ended with exit code {code}"))
