"""The cache of the most recently read index pages of all logs."""

from threading import Lock
from typing import Final, Protocol

PAGES_MAX: Final = 2_048
"""The largest number of cached pages: 4 or 6 KiB each, about 10 MiB in total.

A lookup in an index without a cached page reads from the index file with a few `pread` calls.
"""


class HoldsPage(Protocol):
    """An index with a cached page."""

    def drop_page(self) -> None:
        """Drop the cached page."""
        ...


class IndexPages:
    """The indexes that have a page in memory, at most `pages_max` indexes.

    A lock guards them, because the threads that load logs use them, too.
    """

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._holders: dict[HoldsPage, None] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def kept(self, holder: HoldsPage) -> None:
        """Register an index that has cached a page; drop the oldest page if more than `pages_max` are cached."""
        with self._lock:
            self._holders.pop(holder, None)
            self._holders[holder] = None
            if len(self._holders) > self._pages_max:
                oldest = next(iter(self._holders))
                del self._holders[oldest]
                oldest.drop_page()
