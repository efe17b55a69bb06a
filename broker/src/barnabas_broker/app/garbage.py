"""The scope of the garbage collector, which does not check long-lived objects again and again.

A full collection goes over all objects that are not frozen, and the loop stands still meanwhile. `gc.freeze` excludes
all present ones. They are freed like any others once nobody refers to them; only cycles among them would stay.
"""

import gc
from time import perf_counter, thread_time
from typing import Final

from barnabas_core.loop_turns import LONGEST_PART

GARBAGE: Final = "garbage collection"
OLDEST: Final = 2
"""The generation of a full collection."""
FREEZE_S: Final = 0.01
"""The CPU seconds of a full collection after which the objects that it left are frozen."""


FULL_EACH: Final = 5
"""The collections of the middle generation before a full one, half of Python's default: about 35,000 objects more."""


class Collections:
    """Called by the collector before and after each collection, in whichever thread it runs."""

    def __init__(self) -> None:
        self._began_s = self._cpu_s = 0.0
        self.full_ended_s = self.full_s = 0.0
        """The end and the length of the last full collection, by `perf_counter`."""

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Record the time of a collection; the garbage collector calls it at its start and its end."""
        is_full = info["generation"] == OLDEST
        if phase == "start":
            self._began_s = perf_counter()
            if is_full:
                self._cpu_s = thread_time()
            return
        ended_s = perf_counter()
        LONGEST_PART.took(GARBAGE, ended_s - self._began_s)
        if is_full:
            self.full_ended_s, self.full_s = ended_s, ended_s - self._began_s
            if thread_time() - self._cpu_s > FREEZE_S:
                gc.freeze()  # None of these objects is garbage at this moment.


def freeze() -> None:
    """Freeze all objects, before a broker loads its logs and before it serves, as they will stay.

    A full collection waits until the new objects are a quarter of what the last one left: so the last one leaves
    nothing.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_EACH)
    gc.collect()
    gc.freeze()
    gc.collect()
