"""The second half of a compaction: copying the records that stay from adjacent segments to one new segment."""

from collections.abc import Sequence

from barnabas_broker.storage.cleaner.batch_filter import BatchFilter
from barnabas_broker.storage.cleaner.batch_reader import Pacer, read_batches
from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.helper.requests import CleanSegments, SegmentCleaned
from barnabas_broker.storage.segments.index_pages import IndexPages
from barnabas_broker.storage.segments.segment_indexes import SegmentIndexes
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction, index_entry
from barnabas_broker.wire.record_batch import parse_header


def clean_segments(files: FileSystem, request: CleanSegments, batch_filter: BatchFilter, pace: Pacer) -> SegmentCleaned:
    """Write the records that stay to `.cleaned` files; remove the files after an error.

    The last batch of the old segments stays, even without records, so that the new segment ends at the same offset.
    After a crash, recovery reads from this end offset which old segments the new one replaces. Raises OSError and
    InvalidBatch.
    """
    paths = [
        f"{request.directory}/{file_names.segment_file(each.base_offset, file_names.LOG)}" for each in request.segments
    ]
    base_offset = request.segments[0].base_offset
    cleaned = CleanedSegment(files, request.directory, base_offset, request.index_interval_bytes, request.read_bytes)
    last = max((each for each in request.segments if each.size_bytes), default=None)
    try:
        for path, segment in zip(paths, request.segments, strict=True):
            file = files.open_existing(path)
            for batch in read_batches(file, segment.size_bytes, segment.base_offset, request.read_bytes, pace):
                is_last = segment is last and batch.end_position == segment.size_bytes
                kept = batch_filter.cleaned(batch, must_stay=is_last)
                if kept is not None:
                    cleaned.append(kept)
                    pace(len(kept))
        cleaned.finish(files.modified_ms(paths[-1]), batch_filter.aborted)
    except BaseException:
        cleaned.remove()
        raise
    bytes_read = sum(each.size_bytes for each in request.segments)
    return SegmentCleaned(base_offset, cleaned.size_bytes, bytes_read, batch_filter.counts)


class CleanedSegment:
    """The writer of a new segment's `.cleaned` files. Raises OSError.

    Batches must be appended in the order of their offsets. After the last batch, the caller calls `finish`, or after an
    error `remove`.
    """

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, index_interval_bytes: int, write_bytes: int
    ) -> None:
        self.size_bytes = 0
        self._files = files
        self._directory = directory
        self._paths = [
            f"{directory}/{file_names.segment_file(base_offset, suffix)}{file_names.CLEANED}"
            for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX)
        ]
        log, index, times = self._paths
        self._file = files.open_file(log)
        self._file.truncate(0)
        self._indexes = SegmentIndexes.of(
            files, (index, times), (0, 0), base_offset, index_interval_bytes, IndexPages(2)
        )
        self._indexes.create_files()
        self._aborted_path = (
            f"{directory}/{file_names.segment_file(base_offset, file_names.TXN_INDEX)}{file_names.CLEANED}"
        )
        self._write_bytes = write_bytes
        self._waiting = bytearray()

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Append a batch, which is buffered until `write_bytes` bytes can be written at once."""
        header = parse_header(batch, 0)
        self._indexes.observe(self.size_bytes, header.last_offset, header.max_timestamp_ms)
        self.size_bytes += len(batch)
        self._waiting += batch
        if len(self._waiting) >= self._write_bytes:
            self._write()

    def _write(self) -> None:
        self._file.append(self._waiting, self.size_bytes - len(self._waiting))
        self._waiting = bytearray()

    def finish(self, modified_ms: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Sync the files, and set the modification time that retention uses for records without timestamps.

        `aborted` are the transactions for the `.txnindex`, in the order of their markers.
        """
        self._write()
        self._indexes.seal()
        if aborted:
            self._files.write_atomically(self._aborted_path, b"".join(map(index_entry, aborted)), sync=True)
        for path in self._paths:
            self._files.open_file(path).sync()
        self._files.set_modified_ms(self._paths[0], modified_ms)
        self._files.sync_dir(self._directory)

    def remove(self) -> None:
        """Remove the unfinished files."""
        for path in (*self._paths, self._aborted_path):
            self._files.remove(path)
