"""Files and directories that have been renamed out of sight and are removed after a while, in a thread if need be."""

from collections.abc import Sequence
from heapq import heappop, heappush

from barnabas_broker.storage.disk.files import FileSystem


class Trash:
    """The paths to be removed, each with its time (`file.delete.delay.ms` after it was deleted)."""

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        """Remove this file or directory from `due_ms` on."""
        heappush(self._due, (due_ms, path))

    def take(self, now_ms: int) -> list[str]:
        """Take the paths that are due; the caller removes them."""
        taken = []
        while self._due and self._due[0][0] <= now_ms:
            taken.append(heappop(self._due)[1])
        return taken


def remove_all(files: FileSystem, paths: Sequence[str]) -> list[OSError]:
    """Remove files and directories; return the errors of those that stay. A thread may call it: no state is shared."""
    refusals = []
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            refusals.append(error)
    return refusals
