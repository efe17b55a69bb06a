"""The errors of storage, which the replica manager catches."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class StorageError(Exception):
    """A disk failure in the directory `log_dir`; the message says what happened and what to do."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(f"{log_dir}: {message}")
        self.log_dir = log_dir


class DiskFull(StorageError):
    """A full disk: the log dir refuses appends until space is free; reads continue."""


class Exhausted(DiskFull):
    """A lack of file descriptors or memory in the process.

    As with a full disk, a later attempt may succeed.
    """


class LogDirFailed(StorageError):
    """A log dir that cannot be read, written or synced; its partitions are offline until the disk works again."""


class CorruptLog(StorageError):
    """A corrupt batch in the middle of a log: the partition of the log goes offline, all others stay online."""


class LogDirRefused(StorageError):
    """A log dir that is in use by another process or belongs to another broker: this broker must not start."""


class SyncFailed(OSError):
    """A failed fsync. The unsynced pages may be lost even if the next fsync succeeds."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


class HalfDone(OSError):
    """A change of a log that failed half-way and could not be undone: the log must be loaded again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)


@contextmanager
def half_done() -> Iterator[None]:
    """Replace an OSError of the `with` block by HalfDone, after which the log must be loaded again."""
    try:
        yield
    except OSError as error:
        raise HalfDone(error) from error


class InvalidBatch(Exception):
    """An invalid or incomplete batch at byte `position` of a segment; the message gives the reason.

    `torn` is True if the bytes may be the beginning of a batch whose rest is missing at the end of the file.
    """

    def __init__(self, position: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.torn = torn


def lacks_space(error: OSError) -> bool:
    """True if the disk is full or the quota is used up."""
    return error.errno in _NO_SPACE


def storage_error(log_dir: str, path: str, error: OSError | InvalidBatch) -> StorageError:
    """Return the StorageError for an OSError or InvalidBatch; `path` is the file or directory concerned."""
    if isinstance(error, InvalidBatch):
        return CorruptLog(
            log_dir, f"{path} is damaged {error}; restore the file from a replica or a backup, or delete it"
        )
    if isinstance(error, SyncFailed):
        return LogDirFailed(log_dir, f"a sync failed ({error}), so written data may be lost: the log dir goes offline")
    if isinstance(error, HalfDone):
        return LogDirFailed(
            log_dir, f"{path} was changed only in part ({error}): the log dir goes offline and is loaded again"
        )
    if lacks_space(error):
        return DiskFull(log_dir, f"no space left ({error}): free disk space, or move partitions to another log dir")
    if error.errno in _EXHAUSTED:
        return Exhausted(
            log_dir, f"the process has no file descriptors or memory left ({error}); the broker tries again"
        )
    return LogDirFailed(log_dir, f"the disk failed ({error}): the log dir is offline until the disk works again")


@contextmanager
def disk_errors(log_dir: str, path: str) -> Iterator[None]:
    """Replace an OSError or InvalidBatch of the `with` block by a StorageError; `path` is what the message names."""
    try:
        yield
    except (OSError, InvalidBatch) as error:
        raise storage_error(log_dir, path, error) from error


class _OnLogDir(Protocol):
    log_dir: str
    directory: str


_Owner = TypeVar("_Owner", bound=_OnLogDir)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def disk_access(
    method: Callable[Concatenate[_Owner, _Arguments], _Result],
) -> Callable[Concatenate[_Owner, _Arguments], _Result]:
    """Decorate a method that accesses the disk, so that OSError and InvalidBatch become a StorageError."""

    @wraps(method)
    def translated(self: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(self, *args, **kwargs)
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error

    return translated
