"""The parts of a response on its way to the socket: bytes, and slices of files that the kernel sends itself."""

from typing import NamedTuple, Protocol


class SendableFile(Protocol):
    """An open file whose bytes `sendfile` can send."""

    def fileno(self) -> int:
        """The file descriptor; valid for as long as this object is referenced."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes from `position`, for transports without `sendfile`."""
        ...


class FileSlice(NamedTuple):
    """`length` bytes of `file` from byte `position`. Holding it keeps the file open, even when it is deleted."""

    file: SendableFile
    position: int
    length: int


Buffer = bytes | bytearray | memoryview

Part = Buffer | FileSlice
"""One piece of a response; a response is a list of them, the 4-byte size included in the first."""
