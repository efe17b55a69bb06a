"""The folder or bucket of an archive, as jobs need it beside its tables; here for a local folder."""

import errno
import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from barnabas_jobs.planning.errors import JobFailed, Refused


class Store(Protocol):
    """A local folder or a bucket with the files of an archive, or the plans of restores.

    Names are relative to the folder or bucket. Failures raise JobFailed, except that `remove` may leave files behind.
    """

    def url(self, name: str) -> str:
        """Return the URL by which Spark reads and writes the file or folder."""

    def make(self, *folders: str) -> None:
        """Create the folders so that they survive a power cut."""

    def check_add(self) -> None:
        """Raise JobFailed unless the store can add a file atomically."""

    def locked(self, name: str, taken: str) -> AbstractContextManager[None]:
        """Hold a lock while the block runs, if the store has locks.

        Raises JobFailed with the text `taken` if another process holds the lock.
        """

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or an empty list if the folder does not exist."""

    def read(self, name: str) -> bytes | None:
        """Return the content of the file, or None if there is no such file."""

    def add(self, name: str, content: bytes) -> bool:
        """Add a file atomically and durably; return False if the name is taken."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the size in bytes of each file below the folder."""

    def older(self, folder: str, before_ms: int) -> list[str]:
        """Return the names of the files below the folder that were last changed before a time in ms since 1970."""

    def sync(self, files: Iterable[str]) -> None:
        """Make the files survive a power cut."""

    def remove(self, folder: str) -> None:
        """Remove the file or folder recursively, except for files that cannot be removed."""


PARTIAL: Final = ".partial"
NOT_OURS: Final = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


class LocalFolder:
    """A local folder with the files of an archive, or with the plans of restores.

    File names are relative to the folder, with `/`. Failures raise JobFailed with the kernel's reason. `option` is the
    name of the job's option that gives the folder.
    """

    def __init__(self, path: str, option: str = "archive") -> None:
        self.path = Path(path).absolute()
        self._option = option

    def __str__(self) -> str:
        return str(self.path)

    def url(self, name: str) -> str:
        """Return the path by which Spark reads and writes the file or folder."""
        return str(self.path / name)

    def make(self, *folders: str) -> None:
        """Make the folders durably."""
        with self._as_job_failed("cannot be written"):
            missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
            for folder in folders:
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            for made in missing:
                sync(made.parent)
            sync(self.path)

    def check_add(self) -> None:
        """Raise JobFailed if the file system has no hard links, which `add` needs."""
        one = self.path / f".{uuid.uuid4().hex[:12]}{PARTIAL}"
        other = one.with_suffix(".link")
        with self._as_job_failed("cannot be written"):
            try:
                one.touch()
                os.link(one, other)
            finally:
                one.unlink(missing_ok=True)
                other.unlink(missing_ok=True)

    @contextmanager
    def locked(self, name: str, taken: str) -> Iterator[None]:
        """Hold a lock while the block runs; the kernel releases it even if this process is killed.

        Raises JobFailed with the text `taken` if another process holds the lock. If the file system has no locks, the
        block runs without a lock.
        """
        with self._as_job_failed("cannot be written"):
            lock = (self.path / name).open("a+")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                owner = lock.read().strip() or "another process"
                raise JobFailed(f"{self._option}={self}: {owner} {taken}; wait until that run has ended") from None
            except OSError:
                pass  # Two runs may go on without a lock, but only one of them can add a file of a given name.
            with self._as_job_failed("cannot be written"):
                lock.truncate(0)
                lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
                lock.flush()
            yield

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or an empty list if the folder does not exist."""
        with self._as_job_failed(f"{folder} cannot be read"):
            try:
                return sorted(os.listdir(self.path / folder))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def read(self, name: str) -> bytes | None:
        """Return the content of the file, or None if there is no such file."""
        with self._as_job_failed(f"{name} cannot be read"):
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

    def add(self, name: str, content: bytes) -> bool:
        """Add a file atomically and durably; return False if the name is taken.

        An NFS client may repeat a request whose answer was lost, and then finds that the name is taken. So return True
        if the existing file is the one that this call has written.
        """
        final = self.path / name
        partial = final.with_suffix(f".{uuid.uuid4().hex[:12]}{PARTIAL}")
        with self._as_job_failed(f"{name} cannot be written"):
            try:
                _write_synced(partial, content)
                os.link(partial, final)
            except FileExistsError:
                return final.samefile(partial)
            finally:
                partial.unlink(missing_ok=True)
            sync(final.parent)
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of each file below the folder."""
        with self._as_job_failed(f"{folder} cannot be read"):
            files = (path for path in sorted((self.path / folder).rglob("*")) if path.is_file())
            return {str(path.relative_to(self.path)): path.stat().st_size for path in files}

    def older(self, folder: str, before_ms: int) -> list[str]:
        """Return the names of the files below the folder that were last changed before a time in ms since 1970."""
        with self._as_job_failed(f"{folder} cannot be read"):
            files = (path for path in sorted((self.path / folder).rglob("*")) if path.is_file())
            return [str(path.relative_to(self.path)) for path in files if path.stat().st_mtime * 1000 < before_ms]

    def sync(self, files: Iterable[str]) -> None:
        """Sync the files and their folders."""
        paths = [self.path / name for name in files]
        folders = {folder for path in paths for folder in path.parents if folder.is_relative_to(self.path)}
        with self._as_job_failed("the data files of this run cannot be flushed to disk"):
            for path in (*paths, *folders):
                sync(path)

    def remove(self, folder: str) -> None:
        """Remove the file or folder recursively, except for files that cannot be removed."""
        path = self.path / folder
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()  # It fails unless the folder is empty.

    @contextmanager
    def _as_job_failed(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = ""
            if error.errno == errno.ENOSPC:
                hint = "; the disk is full: free some space, and run the job again"
            elif error.filename2 is not None and error.errno in NO_LINKS:
                hint = "; this folder needs a file system with hard links"
            kind = Refused if error.errno in NOT_OURS else JobFailed
            raise kind(f"{self._option}={self}: {what}: {error.strerror}{hint}") from error


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make a file or the entries of a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
