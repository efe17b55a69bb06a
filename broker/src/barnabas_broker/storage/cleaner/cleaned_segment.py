"""The writer of a new segment's `.cleaned` files: the log and its indexes."""

from collections.abc import Sequence

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.segments.index_pages import IndexPages
from barnabas_broker.storage.segments.segment_indexes import SegmentIndexes
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction, index_entry
from barnabas_broker.wire.record_batch import parse_header


class CleanedSegment:
    """The writer of a new segment. Batches must be appended in the order of their offsets. Raises OSError.

    After the last batch, the caller calls `finish`, or after an error `remove`.
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
        self._indexes.observe(self.size_bytes, len(batch), header.last_offset, header.max_timestamp_ms)
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
