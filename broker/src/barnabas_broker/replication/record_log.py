"""The log of an internal topic, in which a coordinator stores its state as keys and values."""

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import CorruptLog, StorageError, disk_errors
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.key_values import KeyValueReader, KeyValueSlice, Marker, ProducerEpoch
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, parse_header
from barnabas_broker.wire.records import BrokenRecords, Record, encode_batch
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError

KeyValue = tuple[bytes, bytes | None]

BATCH_BYTES_MAX: Final = 100 * 1024 * 1024
"""The maximum uncompressed size of a coordinator's batch, in bytes; a larger batch counts as damaged."""


class RecordLog:
    """The partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        clock: Clock,
        codec: int,
        read_bytes: int,
        *,
        keeps_all: bool = False,
    ) -> None:
        """Create the log. `codec` compresses new batches; `read_bytes` limits the size of one read from the disk.

        With `keeps_all`, `read` yields all records in the order of the log, not only the last one of each key.
        """
        self._codec = codec
        self._read_bytes = read_bytes
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._keeps_all = keeps_all

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        done: Callable[[ApiError | None], object],
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append one batch now; `producer` makes the batch a part of the producer's transaction.

        The transaction must be open in the partition, or have a current verification. If nothing was written,
        `done(error)` is called before `append` returns. Otherwise `done(None)` is called once the batch is committed,
        or `done(error)` once the broker cannot find out whether the batch will be committed. Batches are committed in
        the order of their appends.
        """
        now_ms = self._clock.now_ms()
        written = [Record(delta, now_ms, key, value) for delta, (key, value) in enumerate(records)]
        attributes = self._codec | (0 if producer is None else TRANSACTIONAL_BIT)
        who = {} if producer is None else {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        batch = encode_batch(written, attributes=attributes, **who)
        try:
            with self._replicas.failures.using(self._topic, partition) as hosted:
                hosted.check_writable(all_replicas=True)
                current = None if producer is None else hosted.log.producers.verifications.current(producer.producer_id)
                appended = hosted.append_as_leader(memoryview(batch), parse_header(batch, 0), now_ms, current)
        except ApiError as error:
            done(error)
            return
        hosted.waits.wait(appended.end_offset, done, hosted.log.high_watermark)

    def append_marker(
        self, partition: int, marker: Marker, transaction_version: int, done: Callable[[ApiError | None], object]
    ) -> None:
        """Append a transaction marker; `done` is called as described for `append`."""
        try:
            with self._replicas.failures.using(self._topic, partition) as hosted:
                hosted.check_writable(all_replicas=True)
                offset = hosted.append_marker(marker, transaction_version, self._clock.now_ms())
        except ApiError as error:
            done(error)
            return
        hosted.waits.wait(offset + 1, done, hosted.log.high_watermark)

    def when_committed(self, partition: int, done: Callable[[ApiError | None], object]) -> None:
        """Call `done(None)` once all records that are in the log now are committed.

        Call `done(error)` if the broker cannot find that out, for example because another broker becomes the leader.
        """
        try:
            hosted = self._replicas.lookup.find(self._topic, None, partition)
            hosted.check_readable(-1)
        except ApiError as error:
            done(error)
            return
        hosted.waits.wait(hosted.log.log_end_offset, done, hosted.log.high_watermark)

    def end_offset(self, partition: int) -> int:
        """Return the log end offset, to which the next batch is appended. Raises ApiError."""
        return self._replicas.lookup.find(self._topic, None, partition).log.log_end_offset

    def delete_before(self, partition: int, offset: int) -> None:
        """Raise the log start offset to a committed offset, as DeleteRecords does. Raises ApiError."""
        with self._replicas.failures.using(self._topic, partition) as hosted:
            hosted.check_writable(all_replicas=False)
            if hosted.log.log_start_offset < offset <= hosted.log.high_watermark:
                hosted.delete_records_before(offset)

    def read(self, partition: int, on_ready: Callable[[], object]) -> Iterator[KeyValueSlice | None]:
        """Read the log from its start to its current end in slices; yield the last value of each key in each slice.

        With `keeps_all`, a slice has all its records. Reading a slice takes about 1 ms. While a thread reads from the
        disk, None is yielded; the caller must then wait until `on_ready` is called. Records above the high watermark
        are read, too, because the high watermark of a new leader may be too low. Raises ApiError and StorageError.
        """
        hosted = self._replicas.lookup.find(self._topic, None, partition)
        hosted.check_readable(-1)
        offset, end_offset = hosted.log.log_start_offset, hosted.log.log_end_offset
        while offset < end_offset:
            records = hosted.log.read(offset, self._read_bytes, end_offset, at_least_one_batch=True)
            if records is None:
                return
            data = yield from _read_in_thread(hosted, records, on_ready)
            offset = yield from _key_values(hosted, KeyValueReader(data, BATCH_BYTES_MAX, keeps_all=self._keeps_all))


def _read_in_thread(
    hosted: Partition, records: FileSlice, on_ready: Callable[[], object]
) -> Generator[None, None, bytes]:
    """Read records in a thread, because a disk may be slow.

    Yield None while the thread runs; then return the bytes.
    """
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(hosted.log.threads, records.file.read_at, records.position, records.length)

    def ready(done: asyncio.Future[bytes]) -> None:
        done.exception()  # Read the exception, because asyncio logs unread ones.
        on_ready()

    reading.add_done_callback(ready)
    while not reading.done():
        yield None
    with disk_errors(hosted.log.log_dir, hosted.log.directory):
        return reading.result()


def _key_values(hosted: Partition, reader: KeyValueReader) -> Generator[KeyValueSlice, None, int]:
    """Yield the records of all complete batches; return the offset after the last complete batch."""
    try:
        yield from reader.slices()
    except BrokenRecords as error:
        raise CorruptLog(hosted.log.log_dir, f"{hosted.topic_partition}, {error}") from error
    if reader.next_offset is None:
        raise StorageError(hosted.log.log_dir, f"the log of {hosted.topic_partition} ends in the middle of a batch")
    return reader.next_offset
