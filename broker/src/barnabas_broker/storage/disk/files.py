"""All file IO of the storage floor, behind one object, so that a simulated disk can take its place.

Every method raises OSError, SyncFailed where it is a sync that failed; the callers make it a StorageError, because they
know the log dir.
"""

import fcntl
import os
import shutil
from typing import Final, NamedTuple, Protocol

from barnabas_broker.storage.errors import SyncFailed

_REWRITTEN_BYTES: Final = 1 << 20


class FileEntry(NamedTuple):
    """One name in a directory. `size_bytes` and `modified_ns` are 0 for a directory."""

    name: str
    is_dir: bool
    size_bytes: int
    modified_ns: int


class DiskUsage(NamedTuple):
    """The size of the file system that holds a path; an unprivileged process may still write `usable_bytes`."""

    total_bytes: int
    usable_bytes: int


class LogFile(Protocol):
    """An open file of bytes. It closes with its last reference, so a slice being sent keeps a deleted file alive.

    It satisfies `wire.parts.SendableFile`.
    """

    def fileno(self) -> int:
        """The file descriptor, for `sendfile`."""
        ...

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`, the file's end. When that fails the file is as long as before."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the file's end."""
        ...

    def rewrite(self, position: int) -> None:
        """Write the bytes from `position` on once more, because a failed sync may have marked them as written."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        ...

    def sync(self) -> None:
        """Return when the data are on the disk, or raise SyncFailed. Blocks: for a thread, not the loop."""
        ...

    def size_bytes(self) -> int:
        """The length of the file in bytes."""
        ...


class FileSystem(Protocol):
    """The operations of the storage floor on a disk, except those on open files."""

    def open_file(self, path: str) -> LogFile:
        """Open for reading and writing; create it where it is missing."""
        ...

    def open_existing(self, path: str) -> LogFile:
        """Open a file for reading. Raises FileNotFoundError."""
        ...

    def read(self, path: str) -> bytes:
        """Return all bytes of a small file; FileNotFoundError where there is none."""
        ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a small file: after a crash either the old or the new content is there, never a part."""
        ...

    def scan(self, path: str) -> list[FileEntry]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """True if there is such a file or directory."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename within a file system; an existing file is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; no error if it does not exist."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time in ms at which the file was last written."""
        ...

    def sync_dir(self, path: str) -> None:
        """Sync a directory, so that names in it survive a crash; no error if it does not exist. Blocks."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """The total and the usable bytes of the disk that a path is on."""
        ...

    def lock(self, path: str) -> LogFile:
        """Hold a lock file for as long as the result is referenced; BlockingIOError when another process holds it."""
        ...


class PosixFile:
    """A LogFile over a file descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Implement `LogFile`."""
        return self._descriptor

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Implement `LogFile`."""
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                self._append_rest(memoryview(data), position, written)
        except OSError:
            os.ftruncate(self._descriptor, position)
            raise

    def _append_rest(self, data: memoryview, position: int, written: int) -> None:
        """Write the rest after a short write: a full disk begins with one, and the next write names the reason."""
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)

    def read_at(self, position: int, length: int) -> bytes:
        """Implement `LogFile`."""
        data = os.pread(self._descriptor, length, position)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def rewrite(self, position: int) -> None:
        """Implement `LogFile`."""
        while data := os.pread(self._descriptor, _REWRITTEN_BYTES, position):
            position += os.pwrite(self._descriptor, data, position)

    def truncate(self, length: int) -> None:
        """Implement `LogFile`."""
        os.ftruncate(self._descriptor, length)

    def sync(self) -> None:
        """Implement `LogFile`."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise SyncFailed(error) from error

    def size_bytes(self) -> int:
        """Implement `LogFile`."""
        return os.fstat(self._descriptor).st_size


class PosixFileSystem:
    """The files of the operating system."""

    def open_file(self, path: str) -> LogFile:
        """Implement `FileSystem`."""
        return PosixFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def open_existing(self, path: str) -> LogFile:
        """Implement `FileSystem`."""
        return PosixFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        """Implement `FileSystem`."""
        file = self.open_existing(path)
        return file.read_at(0, file.size_bytes())

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        """Implement `FileSystem`."""
        temporary = path + ".tmp"
        file = PosixFile(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        file.append(data, 0)
        if sync:
            file.sync()
        os.rename(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def scan(self, path: str) -> list[FileEntry]:
        """Implement `FileSystem`."""
        with os.scandir(path) as entries:
            return sorted(_file_entry(entry) for entry in entries)

    def exists(self, path: str) -> bool:
        """Implement `FileSystem`."""
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        """Implement `FileSystem`."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Implement `FileSystem`."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Implement `FileSystem`."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            shutil.rmtree(path)

    def modified_ms(self, path: str) -> int:
        """Implement `FileSystem`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Implement `FileSystem`."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_dir(self, path: str) -> None:
        """Implement `FileSystem`."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(error) from error
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> DiskUsage:
        """Implement `FileSystem`."""
        status = os.statvfs(path)
        return DiskUsage(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def lock(self, path: str) -> LogFile:
        """Implement `FileSystem`."""
        file = self.open_file(path)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file


def _file_entry(entry: os.DirEntry[str]) -> FileEntry:
    if entry.is_dir(follow_symlinks=False):
        return FileEntry(entry.name, True, 0, 0)
    status = entry.stat(follow_symlinks=False)
    return FileEntry(entry.name, False, status.st_size, status.st_mtime_ns)
