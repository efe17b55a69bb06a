"""The cap on the files that logs keep open: the one used longest ago is closed first."""

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Protocol


class HoldsFile(Protocol):
    """A segment, as this module sees it."""

    used: bool
    """Set at each use of its file; the cap takes it back once before it takes the file."""

    def release_file(self) -> None:
        """Drop the reference to the open file. Slices that are still being sent keep theirs."""
        ...


class OpenFiles:
    """Segments with an open file, at most `files_max`. A second-chance clock, so a use costs one attribute.

    Locked, for a log dir that comes back is loaded in a thread while the loop goes on with the others.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._clock: deque[HoldsFile] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._clock)

    def opened(self, holder: HoldsFile) -> None:
        """`holder` has just opened its file."""
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
        """`holder` has released its file by itself."""
        with self._lock, suppress(ValueError):  # It may have been closed already to keep the limit.
            self._clock.remove(holder)
