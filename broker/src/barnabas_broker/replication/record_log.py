"""An internal topic as a log of keys and values: what the coordinators write their state to and load it from."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import CorruptLog, StorageError
from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, parse_header
from barnabas_broker.wire.records import BrokenRecords, Record, decode_batch, encode_batch
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError

KeyValue = tuple[bytes, bytes | None]

SLICE_BYTES: Final = 64 * 1024
"""Read and decoded at a time, so that loading does not hold up the loop."""
BATCH_BYTES_MAX: Final = 100 * 1024 * 1024
"""No batch of ours is larger uncompressed; what claims to be is damaged."""


class RecordLog:
    """The partitions of one internal topic that this broker leads."""

    def __init__(self, topic: str, replicas: ReplicaManager, clock: Clock) -> None:
        self._topic = topic
        self._replicas = replicas
        self._clock = clock

    def append(self, partition: int, records: Sequence[KeyValue], done: Callable[[ApiError | None], object]) -> None:
        """Append one batch. `done(error)` before this returns: nothing was written. Else later, in the order of the
        appends: `done(None)` once it is committed, `done(error)` when nobody can say whether it will be.
        """
        now_ms = self._clock.now_ms()
        batch = encode_batch([Record(delta, now_ms, key, value) for delta, (key, value) in enumerate(records)])
        try:
            with self._replicas.using(self._topic, partition) as hosted:
                hosted.check_writable(all_replicas=True)
                appended = hosted.append_as_leader(memoryview(batch), parse_header(batch, 0), now_ms)
        except ApiError as error:
            done(error)
            return
        hosted.when_committed(appended.base_offset + len(records), done)

    def when_committed(self, partition: int, done: Callable[[ApiError | None], object]) -> None:
        """`done(None)` once all that is in the log now is committed, `done(error)` when nobody can say that."""
        try:
            hosted = self._replicas.find(self._topic, None, partition)
            hosted.check_readable(-1)
        except ApiError as error:
            done(error)
            return
        hosted.when_committed(hosted.log.log_end_offset, done)

    def read(self, partition: int) -> Iterator[Sequence[KeyValue]]:
        """All records with a key from the log's start to its end of now, slice by slice. ApiError, StorageError.

        A new leader has everything that was ever committed, but may not know yet that it is.
        """
        hosted = self._replicas.find(self._topic, None, partition)
        hosted.check_readable(-1)
        offset, end_offset = hosted.log_start_offset, hosted.log.log_end_offset
        while offset < end_offset:
            records = hosted.log.read(offset, SLICE_BYTES, end_offset, at_least_one_batch=True)
            if records is None:
                return
            data = records.file.read_at(records.position, records.length)
            offset, key_values = _decode(hosted, data, offset)
            yield key_values


def _decode(hosted: Partition, data: bytes, offset: int) -> tuple[int, list[KeyValue]]:
    """The whole batches in `data`: where to read on, and their records from `offset` on."""
    key_values: list[KeyValue] = []
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            break
        if not header.is_control:
            key_values += _records_with_key(hosted, data, position, header)
        offset = header.last_offset + 1
        position += header.size_bytes
    if position == 0:
        raise StorageError(hosted.log.log_dir, f"{hosted.topic_partition} ends in the middle of a batch")
    return offset, key_values


def _records_with_key(hosted: Partition, data: bytes, position: int, header: BatchHeader) -> Iterator[KeyValue]:
    try:
        records = decode_batch(data, position, header, BATCH_BYTES_MAX)
    except BrokenRecords as error:
        what = f"{hosted.topic_partition}, batch at offset {header.base_offset}"
        raise CorruptLog(hosted.log.log_dir, f"{what}: {error}") from error
    return ((each.key, each.value) for each in records if each.key is not None)
