"""A broken world, as the storage floor meets it. Caught at one boundary, the replica manager."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class StorageError(Exception):
    """Something on disk failed; `log_dir` says where, the message what and what to do."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(f"{log_dir}: {message}")
        self.log_dir = log_dir


class DiskFull(StorageError):
    """No space left: the directory takes no appends until there is; reads go on."""


class Exhausted(DiskFull):
    """The process lacks file descriptors or memory. Nothing is wrong with the disk; as on a full one, the next try may
    pass."""


class LogDirFailed(StorageError):
    """The directory cannot be read, written or synced: its partitions are offline until it can."""


class CorruptLog(StorageError):
    """A batch in the middle of a log fails its checks: that partition is offline; the others live."""


class LogDirRefused(StorageError):
    """Another process uses the directory, or it is another broker's: this broker must not start."""


class SyncFailed(OSError):
    """An fsync failed, for lack of space too: pages that were to be written may be gone, and the next one may pass."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


class HalfDone(OSError):
    """A disk took some of several steps, and lets them neither be finished nor undone: the log is to be loaded anew."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


@contextmanager
def half_done() -> Iterator[None]:
    """An OSError of this step is a HalfDone."""
    try:
        yield
    except OSError as error:
        raise HalfDone(error) from error


class InvalidBatch(Exception):
    """What lies at byte `position` of a segment is no whole batch; the message says why. It never leaves this floor.

    `torn`: so far it could be one, but the file ends within it.
    """

    def __init__(self, position: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.torn = torn


def lacks_space(error: OSError) -> bool:
    """Whether the disk is full, or the quota used up."""
    return error.errno in _NO_SPACE


def storage_error(log_dir: str, path: str, error: OSError | InvalidBatch) -> StorageError:
    """What the operating system said, or what a scan of `path` found, as the failure it is."""
    if isinstance(error, InvalidBatch):
        return CorruptLog(log_dir, f"{path} is damaged {error}: restore it from a replica or a backup, or delete it")
    if isinstance(error, SyncFailed):
        return LogDirFailed(
            log_dir, f"a sync failed ({error}), and what was written may be lost: its partitions go offline"
        )
    if isinstance(error, HalfDone):
        return LogDirFailed(
            log_dir, f"{path} was changed by half ({error}): its partitions go offline and are loaded anew"
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
    """For a method that touches the disk, off the hot path: OSError and InvalidBatch leave it as a StorageError."""

    @wraps(method)
    def translated(self: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(self, *args, **kwargs)
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error

    return translated
