"""Files and directories that were renamed for deletion and are removed after a delay."""

from collections.abc import Sequence
from heapq import heappop, heappush

from barnabas_broker.storage.disk.files import FileSystem


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
