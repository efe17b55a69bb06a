"""The folder or bucket of an archive, as jobs need it beside its tables."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol


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
