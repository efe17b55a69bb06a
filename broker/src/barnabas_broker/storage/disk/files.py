"""The file IO of storage behind one interface, so that a simulated disk can replace the real one.

Every method raises OSError, or SyncFailed if a sync failed. The callers turn the error into a StorageError, because
they know the log dir.
"""

import asyncio
import fcntl
import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from threading import Lock
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from barnabas_broker.storage.errors import SyncFailed, disk_access

_REWRITTEN_BYTES: Final = 1 << 20


class FileEntry(NamedTuple):
    """An entry of a directory. `size_bytes` and `modified_ns` are 0 for a subdirectory."""

    name: str
    is_dir: bool
    size_bytes: int
    modified_ns: int


class DiskUsage(NamedTuple):
    """The size of a file system, and the bytes that an unprivileged process can still write."""

    total_bytes: int
    usable_bytes: int


class LogFile(Protocol):
    """An open file, which is closed when its last reference is dropped.

    A response in flight has a reference, so it can still read a deleted file.
    """

    def fileno(self) -> int:
        """Return the file descriptor, for `sendfile`."""
        ...

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`, the end of the file. After an error the file has its old length."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position`, or fewer at the end of the file."""
        ...

    def rewrite(self, position: int) -> None:
        """Rewrite the bytes from `position` on, because a failed sync may have marked their pages as written."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        ...

    def sync(self) -> None:
        """Sync the data to disk. Raises SyncFailed. The call blocks, so it must not run on the event loop."""
        ...

    def size_bytes(self) -> int:
        """The length of the file in bytes."""
        ...


class FileSystem(Protocol):
    """The operations on the files and directories of a disk."""

    def open_file(self, path: str) -> LogFile:
        """Open a file for reading and writing, and create it if it is missing."""
        ...

    def open_existing(self, path: str) -> LogFile:
        """Open a file for reading. Raises FileNotFoundError."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""
        ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace the content of a small file in one step. With `sync`, the new content survives a power failure."""
        ...

    def scan(self, path: str) -> list[FileEntry]:
        """Return the entries of a directory, sorted by name."""
        ...

    def exists(self, path: str) -> bool:
        """True if `path` is a file or directory."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its file system; an existing file is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a directory with its content. A missing path is no error."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file in ms."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file in ms."""
        ...

    def sync_dir(self, path: str) -> None:
        """Sync a directory, so that its entries survive a crash. A missing directory is no error. The call blocks."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """Return the total and the usable bytes of the file system that holds `path`."""
        ...

    def lock(self, path: str) -> LogFile:
        """Lock a file until the last reference to the result is dropped.

        Raises BlockingIOError if another process holds the lock.
        """
        ...


class PosixFile:
    """A LogFile over a file descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Append `data` with `pwrite`, and restore the old length after an error."""
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                self._append_rest(memoryview(data), position, written)
        except OSError:
            os.ftruncate(self._descriptor, position)
            raise

    def _append_rest(self, data: memoryview, position: int, written: int) -> None:
        """Write the rest of `data` after a short write. If the disk is full, this second write raises the error."""
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes with `pread`."""
        data = os.pread(self._descriptor, length, position)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def rewrite(self, position: int) -> None:
        """Write the bytes from `position` on again, unchanged, so that the next sync writes them to the disk."""
        while data := os.pread(self._descriptor, _REWRITTEN_BYTES, position):
            position += os.pwrite(self._descriptor, data, position)

    def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        os.ftruncate(self._descriptor, length)

    def sync(self) -> None:
        """Sync the data to disk with `fdatasync`."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise SyncFailed(error) from error

    def size_bytes(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._descriptor).st_size


class PosixFileSystem:
    """The file system of the operating system."""

    def open_file(self, path: str) -> LogFile:
        """Open a file for reading and writing, and create it if it is missing."""
        return PosixFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def open_existing(self, path: str) -> LogFile:
        """Open a file for reading."""
        return PosixFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        file = self.open_existing(path)
        return file.read_at(0, file.size_bytes())

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a temporary file, and rename it to `path`."""
        temporary = path + ".tmp"
        file = PosixFile(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        file.append(data, 0)
        if sync:
            file.sync()
        os.rename(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def scan(self, path: str) -> list[FileEntry]:
        """Return the entries of a directory, sorted by name."""
        with os.scandir(path) as entries:
            return sorted(_file_entry(entry) for entry in entries)

    def exists(self, path: str) -> bool:
        """True if `path` is a file or directory."""
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            shutil.rmtree(path)

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file in ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file in ms."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_dir(self, path: str) -> None:
        """Sync a directory, if it exists."""
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
        """Return the total and the usable bytes of the file system that holds `path`."""
        status = os.statvfs(path)
        return DiskUsage(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def lock(self, path: str) -> LogFile:
        """Lock a file with `flock` until the last reference to the result is dropped."""
        file = self.open_file(path)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file


def _file_entry(entry: os.DirEntry[str]) -> FileEntry:
    if entry.is_dir(follow_symlinks=False):
        return FileEntry(entry.name, True, 0, 0)
    status = entry.stat(follow_symlinks=False)
    return FileEntry(entry.name, False, status.st_size, status.st_mtime_ns)


class Trash:
    """The paths that wait for their removal until `file.delete.delay.ms` has passed."""

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        """Schedule the removal of a file or directory at the time `due_ms`."""
        heappush(self._due, (due_ms, path))

    def take(self, now_ms: int) -> list[str]:
        """Return the paths whose deletion is due, and drop them from the list; the caller deletes the files."""
        taken = []
        while self._due and self._due[0][0] <= now_ms:
            taken.append(heappop(self._due)[1])
        return taken


def remove_all(files: FileSystem, paths: Sequence[str]) -> list[OSError]:
    """Remove files and directories; return the errors of those that could not be removed. Any thread may call this."""
    refusals = []
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            refusals.append(error)
    return refusals


class FlushJob(msgspec.Struct):
    """A job that syncs a log up to `recovery_point`.

    After `run`, the event loop must call `LogSyncs.flushed`, which raises the log's recovery point.
    """

    log_dir: str
    directory: str
    calls: tuple[Callable[[], None], ...]
    recovery_point: int
    truncations: int
    """The log's number of truncations when the job was created.

    If the log has been truncated since, the job must not raise the recovery point.
    """
    renames: int = 0
    """The directory's number of renames when the job was created.

    If the directory has been renamed since, the job must not raise the recovery point.
    """

    @disk_access
    def run(self) -> None:
        """Sync everything below `recovery_point`. The call blocks. Raises StorageError."""
        for call in self.calls:
            call()


class HoldsFile(Protocol):
    """A segment with an open file."""

    used: bool
    """True if the file was used since `OpenFiles` last cleared this flag. Files without the flag are closed first."""

    def release_file(self) -> None:
        """Drop the reference to the open file. Responses in flight keep their own references."""
        ...


class OpenFiles:
    """The segments with an open file, at most `files_max`, replaced by the second-chance algorithm.

    A lock is needed, because a thread may load the logs of one log dir while the event loop uses other log dirs.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._clock: deque[HoldsFile] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._clock)

    def opened(self, holder: HoldsFile) -> None:
        """Add a segment that has just opened its file.

        If more than `files_max` files are open then, close files of other segments.
        """
        with self._lock:
            while len(self._clock) >= self._files_max:
                oldest = self._clock.popleft()
                if oldest.used:
                    oldest.used = False
                    self._clock.append(oldest)
                else:
                    oldest.release_file()
            self._clock.append(holder)

    def closed(self, holder: HoldsFile) -> None:
        """Remove a segment that has closed its file."""
        with self._lock, suppress(ValueError):  # `opened` may have removed the segment already.
            self._clock.remove(holder)


R = TypeVar("R")

THREADS_PER_LOG_DIR: Final = 4
"""The largest number of concurrent syncs and reads per log dir; further calls wait."""


class DiskThreads:
    """A thread pool for each log dir, to be used from the event loop only."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def of(self, log_dir: str) -> Executor:
        """Return the thread pool of a log dir, created at first use."""
        if log_dir not in self._pools:
            self._pools[log_dir] = ThreadPoolExecutor(THREADS_PER_LOG_DIR, f"disk of {log_dir}")
        return self._pools[log_dir]

    async def run(self, log_dir: str, call: Callable[[], R]) -> R:
        """Run `call` in a thread of the log dir, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.of(log_dir), call)
