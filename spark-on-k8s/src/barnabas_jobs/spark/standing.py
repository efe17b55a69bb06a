"""How far an archive is behind its topic, as the run that writes it says: Spark knows nothing of either."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class Standing(NamedTuple):
    """When the archive had its last commit, and how many offsets of the topic it does not have yet.

    None if that is not known.
    """

    last_commit_ms: int | None = None
    records_behind: int | None = None


UNKNOWN: Final = Standing()
_asked: Final[list[Callable[[], Standing]]] = []
"""Those of this process; the last one counts."""


def standing() -> Standing:
    """That of the run which is under way."""
    return _asked[-1]() if _asked else UNKNOWN


@contextmanager
def reported(ask: Callable[[], Standing]) -> Iterator[None]:
    """Inside, those who watch the run get these answers, in a thread of their own."""
    _asked.append(ask)
    try:
        yield
    finally:
        _asked.remove(ask)
