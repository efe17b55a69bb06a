"""Small files whose paths are given in settings. A file is read again when it changes."""

import logging
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 1024 * 1024
T = TypeVar("T")


class FileRefused(Exception):
    """A file that cannot be used; the message names the setting, its value and what is allowed."""


class Watched(Generic[T]):
    """The content of some files. If changed files cannot be used, the earlier content stays."""

    def __init__(self, what: str, paths: Sequence[str], read: Callable[[], T]) -> None:
        """Read the files. Raises FileRefused if they cannot be used, and any other exception of `read`."""
        self._what, self._paths, self._read = what, paths, read
        self._marks = self._marks_now()
        self.current = read()

    def refresh(self) -> None:
        """Read the files again if they have changed; log whether the new content is used. Never raise FileRefused."""
        marks = self._marks_now()
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self.current = self._read()
        except FileRefused as error:
            log.error("the HTTP listener keeps its old %s, because the new files cannot be used: %s", self._what, error)
        else:
            log.info("the HTTP listener now uses a new %s", self._what)

    def _marks_now(self) -> list[object]:
        return list(map(mark_of_file, self._paths))


def mark_of_file(location: str) -> object:
    """Return a value that changes when the file changes; None if the file cannot be found."""
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def content_of_file(location: str) -> bytes | None:
    """Return the first FILE_BYTES_MAX + 1 bytes of a regular file; None for another kind of file. Raise OSError.

    Clients that may alter configs can choose some of the paths. Other kinds of files are not read, because reading a
    device might never end, and reading a pipe would block.
    """
    with os.fdopen(os.open(location, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(FILE_BYTES_MAX + 1) if is_regular else None
