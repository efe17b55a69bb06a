"""The cap on the number of open segment files: a file that was not used recently is closed first."""

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Protocol


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
