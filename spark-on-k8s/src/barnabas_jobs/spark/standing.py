"""The lag of an archive behind its topic. The run that writes the archive reports the lag, which Spark cannot know."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class Standing(NamedTuple):
    """The time of an archive's last commit, and how many offsets the archive lacks; each is None if unknown."""

    last_commit_ms: int | None = None
    records_behind: int | None = None


UNKNOWN: Final = Standing()
_asked: Final[list[Callable[[], Standing]]] = []
"""The functions that return the state of an archive, one for each running `with reported(...)` block.

`standing` calls the function of the block that began last.
"""


def standing() -> Standing:
    """Return the last commit and the lag of the archive that this process writes; UNKNOWN if it writes no archive."""
    return _asked[-1]() if _asked else UNKNOWN


@contextmanager
def reported(ask: Callable[[], Standing]) -> Iterator[None]:
    """Let `standing` return the result of `ask`, the state of the archive, while the `with` block runs.

    The thread that reports the progress of the job calls `standing`.
    """
    _asked.append(ask)
    try:
        yield
    finally:
        _asked.remove(ask)
