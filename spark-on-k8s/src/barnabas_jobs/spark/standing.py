"""The lag of an archive behind its topic, which the run that writes the archive reports; Spark cannot know it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class Standing(NamedTuple):
    """The time of an archive's last commit, and the number of offsets that the archive lacks; None if unknown."""

    last_commit_ms: int | None = None
    records_behind: int | None = None


UNKNOWN: Final = Standing()
_asked: Final[list[Callable[[], Standing]]] = []
"""The functions that report the lag in this process; `standing` calls the last one."""


def standing() -> Standing:
    """Return the last commit and the lag of the archive that this process writes; UNKNOWN if it writes none."""
    return _asked[-1]() if _asked else UNKNOWN


@contextmanager
def reported(ask: Callable[[], Standing]) -> Iterator[None]:
    """Make `standing` call `ask` while the block runs; the thread that watches the run calls `standing`."""
    _asked.append(ask)
    try:
        yield
    finally:
        _asked.remove(ask)
