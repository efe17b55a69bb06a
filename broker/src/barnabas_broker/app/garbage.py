"""When the garbage collector looks at what: no object that lives long is looked at again and again.

A full collection goes over all objects that are not frozen, and the loop stands still meanwhile. `gc.freeze` takes all
of now out of that. They are freed like any others once nobody refers to them; only cycles among them would stay.
"""

import gc
from time import perf_counter, thread_time
from typing import Final

from barnabas_core.loop_turns import LONGEST_PART

GARBAGE: Final = "garbage collection"
OLDEST: Final = 2
"""The generation of a full collection."""
FREEZE_S: Final = 0.01
"""Of CPU: a full collection that takes longer was the last one for what it left."""


FULL_EACH: Final = 5
"""So many collections of the middle generation, half of Python's default: about 35,000 objects more."""


class Collections:
    """Called by the collector before and after each collection, in whichever thread it runs."""

    def __init__(self) -> None:
        self._began_s = self._cpu_s = 0.0
        self.full_ended_s = self.full_s = 0.0
        """When the last full one ended and how long it took, by `perf_counter`."""

    def __call__(self, phase: str, info: dict[str, int]) -> None:
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
                gc.freeze()  # Right now nothing among them is garbage.


def freeze() -> None:
    """Before a broker loads its logs, and before it serves: what it has is there to stay.

    A full collection waits until as much is new as a quarter of what the last one left: so the last one leaves nothing.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_EACH)
    gc.collect()
    gc.freeze()
    gc.collect()
