"""A file of the storage floor that passes every call on; tests replace one method of it."""

from barnabas_broker.storage.disk.files import LogFile


class WrappedFile:
    """A LogFile over another one."""

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def fileno(self) -> int:
        return self._file.fileno()

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._file.append(data, position)

    def read_at(self, position: int, length: int) -> bytes:
        return self._file.read_at(position, length)

    def rewrite(self, position: int) -> None:
        self._file.rewrite(position)

    def truncate(self, length: int) -> None:
        self._file.truncate(length)

    def sync(self) -> None:
        self._file.sync()

    def size_bytes(self) -> int:
        return self._file.size_bytes()
