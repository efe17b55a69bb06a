"""The product files that a piece of code enters, with the calls that led there."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import barnabas_broker
import barnabas_operator

SOURCES: Final = tuple(f"{Path(next(iter(each.__path__))).parent}/" for each in (barnabas_broker, barnabas_operator))
"""The folders of all packages that brokers and operators run."""


class Walk:
    """The product files that were entered, in order of the first call in each, and the number of calls."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; this is what the interpreter calls for each event of a profile."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCES):
            self.files[name] = self.files.get(name, 0) + 1

    @property
    def calls(self) -> int:
        """The number of calls in all files."""
        return sum(self.files.values())

    def lines(self) -> Iterator[str]:
        """Yield each file with its calls, as it is printed."""
        for name, calls in self.files.items():
            source = next(each for each in SOURCES if name.startswith(each))
            yield f"{calls:>8}  {name.removeprefix(source)}"


@contextmanager
def profiled() -> Iterator[Walk]:
    """Record what this thread, and each thread that begins, calls inside of the context."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def shorter(one: Walk | None, other: Walk) -> Walk:
    """Return the walk with fewer files: the longer one may have met periodic work, or filled a cache."""
    return other if one is None or len(other.files) < len(one.files) else one
