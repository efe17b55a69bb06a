"""The parts of a response: bytes, and slices of files that the kernel sends."""

from typing import NamedTuple, Protocol


class SendableFile(Protocol):
    """An open file whose bytes `sendfile` can send."""

    def fileno(self) -> int:
        """Return the file descriptor, which is valid as long as this object is referenced."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes from `position`, for transports without `sendfile`."""
        ...


class FileSlice(NamedTuple):
    """A slice of `length` bytes of `file` from `position`; the slice keeps the file open, even after its deletion."""

    file: SendableFile
    position: int
    length: int


Buffer = bytes | bytearray | memoryview

Part = Buffer | FileSlice
"""One part of a response, which is a list of parts; the first begins with the 4-byte size."""
