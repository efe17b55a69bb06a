"""A broken world, as the storage floor meets it. Caught at one boundary, the replica manager."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class StorageError(Exception):
    """A failure on disk; `log_dir` is the directory, the message says what happened and what to do."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(f"{log_dir}: {message}")
        self.log_dir = log_dir


class DiskFull(StorageError):
    """A disk without free space: the directory takes no appends until there is some; reads continue."""


class Exhausted(DiskFull):
    """A lack of file descriptors or memory in the process.

    Nothing is wrong with the disk. As on a full one, the next try may pass.
    """


class LogDirFailed(StorageError):
    """The directory cannot be read, written or synced: its partitions are offline until it can."""


class CorruptLog(StorageError):
    """A batch in the middle of a log fails its checks: that partition is offline; the others live."""


class LogDirRefused(StorageError):
    """A directory that another process uses, or that is another broker's: this broker must not start."""


class SyncFailed(OSError):
    """A failed fsync, also for lack of space: its pages may be lost, although the next fsync succeeds."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


class HalfDone(OSError):
    """A failure between several steps that can neither be finished nor undone: the log has to be loaded again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


@contextmanager
def half_done() -> Iterator[None]:
    """Raise an OSError of this step as a HalfDone."""
    try:
        yield
    except OSError as error:
        raise HalfDone(error) from error


class InvalidBatch(Exception):
    """A place in a segment, at byte `position`, that holds no whole batch; the message says why.

    It never leaves this floor. `torn` is True if the file ends within what could be a batch so far.
    """

    def __init__(self, position: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.torn = torn


def lacks_space(error: OSError) -> bool:
    """True if the disk is full, or the quota used up."""
    return error.errno in _NO_SPACE


def storage_error(log_dir: str, path: str, error: OSError | InvalidBatch) -> StorageError:
    """Return the StorageError for an error of the operating system, or for a damage that a scan of `path` found."""
    if isinstance(error, InvalidBatch):
        return CorruptLog(log_dir, f"{path} is damaged {error}: restore it from a replica or a backup, or delete it")
    if isinstance(error, SyncFailed):
        return LogDirFailed(
            log_dir, f"a sync failed ({error}), and what was written may be lost: its partitions go offline"
        )
    if isinstance(error, HalfDone):
        return LogDirFailed(
            log_dir, f"{path} was changed only in part ({error}): its partitions go offline and are loaded again"
        )
    if lacks_space(error):
        return DiskFull(log_dir, f"no space left ({error}): free some, or move partitions to another log dir")
    if error.errno in _EXHAUSTED:
        return Exhausted(log_dir, f"{error}: the limit of open files or the memory is used up; it is tried again")
    return LogDirFailed(log_dir, f"the disk failed ({error}): its partitions are offline until it works again")


class _OnLogDir(Protocol):
    log_dir: str
    directory: str


_Owner = TypeVar("_Owner", bound=_OnLogDir)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def disk_access(
    method: Callable[Concatenate[_Owner, _Arguments], _Result],
) -> Callable[Concatenate[_Owner, _Arguments], _Result]:
    """Decorate a method that touches the disk, off the hot path: OSError and InvalidBatch become a StorageError."""

    @wraps(method)
    def translated(self: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(self, *args, **kwargs)
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error

    return translated
