"""Read the batches of a segment in chunks of bounded size, and check every CRC."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import InvalidBatch
from barnabas_broker.storage.segments.batch_scan import valid_header
from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, crc_matches

Pacer = Callable[[int], None]
"""A callback that gets the number of bytes of each read or write, and waits to limit the rate."""


class ReadBatch(NamedTuple):
    """A batch that begins at byte `start` of `chunk` and at byte `position` of its segment."""

    header: BatchHeader
    chunk: bytes
    start: int
    position: int

    @property
    def end_position(self) -> int:
        """The position in the segment at which the next batch begins."""
        return self.position + self.header.size_bytes

    @property
    def data(self) -> memoryview:
        """The bytes of the batch, including the header."""
        return memoryview(self.chunk)[self.start : self.start + self.header.size_bytes]


def read_batches(file: LogFile, size_bytes: int, offset_min: int, chunk_bytes: int, pace: Pacer) -> Iterator[ReadBatch]:
    """Yield the batches in the first `size_bytes` of a segment's file; their offsets must rise from `offset_min`.

    A batch longer than `chunk_bytes` is read in one piece. Raises OSError and InvalidBatch.
    """
    chunk, start, position = b"", 0, 0
    while position < size_bytes:
        if start + HEADER_BYTES > len(chunk):
            chunk, start = file.read_at(position, min(chunk_bytes, size_bytes - position)), 0
            pace(len(chunk))
        header = valid_header(chunk, start, position, size_bytes, offset_min)
        if start + header.size_bytes > len(chunk):
            wanted = max(chunk_bytes, header.size_bytes)
            chunk, start = file.read_at(position, min(wanted, size_bytes - position)), 0
            pace(len(chunk))
        if len(chunk) < header.size_bytes or not crc_matches(memoryview(chunk), start, header):
            raise InvalidBatch(
                position, f"the CRC of the batch at offset {header.base_offset} does not match the batch's bytes"
            )
        yield ReadBatch(header, chunk, start, position)
        start += header.size_bytes
        position += header.size_bytes
        offset_min = header.last_offset + 1
