"""The index pages in memory: the most recently read ones of all logs of a broker."""

from threading import Lock
from typing import Final, Protocol

PAGES_MAX: Final = 2_048
"""The number of pages of 4 or 6 KiB: about 10 MiB.

A lookup in another index reads its page again, which costs some `pread`s.
"""


class HoldsPage(Protocol):
    """An index, as this module sees it."""

    def drop_page(self) -> None:
        """Keep the page no longer."""
        ...


class IndexPages:
    """Indexes that keep a page, at most `pages_max`. Locked, for logs are loaded in threads, too."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._holders: dict[HoldsPage, None] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def kept(self, holder: HoldsPage) -> None:
        """`holder` has just read a page, and keeps it in the place of the one it had."""
        with self._lock:
            self._holders.pop(holder, None)
            self._holders[holder] = None
            if len(self._holders) > self._pages_max:
                oldest = next(iter(self._holders))
                del self._holders[oldest]
                oldest.drop_page()
