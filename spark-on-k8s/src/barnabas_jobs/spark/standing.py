"""The standing of an archive against its topic, as the run that writes it reports it: Spark knows nothing of either."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class Standing(NamedTuple):
    """The time of an archive's last commit, and the number of the topic's offsets that it does not have yet.

    None if that is not known.
    """

    last_commit_ms: int | None = None
    records_behind: int | None = None


UNKNOWN: Final = Standing()
_asked: Final[list[Callable[[], Standing]]] = []
"""The functions that report the standing in this process; the last one counts."""


def standing() -> Standing:
    """Return the standing of the run that is under way."""
    return _asked[-1]() if _asked else UNKNOWN


@contextmanager
def reported(ask: Callable[[], Standing]) -> Iterator[None]:
    """Give the answers of `ask` inside to those who watch the run, in a thread of their own."""
    _asked.append(ask)
    try:
        yield
    finally:
        _asked.remove(ask)
