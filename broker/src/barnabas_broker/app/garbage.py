"""The settings of the garbage collector, which exclude long-lived objects from collections.

The event loop stops during a full collection, which visits all objects that are not frozen. `gc.freeze` excludes all
current objects. A frozen object is still freed when its last reference is removed, but a cycle of frozen objects is
never freed.
"""

import gc
from time import perf_counter, thread_time
from typing import Final

from barnabas_core.loop_turns import LONGEST_PART

GARBAGE: Final = "garbage collection"
OLDEST: Final = 2
"""The oldest generation, which is collected by a full collection."""
FREEZE_S: Final = 0.01
"""The CPU time in seconds of a full collection above which the surviving objects are frozen."""


FULL_EACH: Final = 2
"""The number of collections of the middle generation before a full collection, a fifth of Python's default.

A large request makes very many objects; the fewer are new, the shorter is the collection that freezes them.
"""


class Collections:
    """The callback of the garbage collector, which measures collections in all threads."""

    def __init__(self) -> None:
        self._began_s = self._cpu_s = 0.0
        self.full_ended_s = self.full_s = 0.0
        """The end and the duration of the last full collection, in seconds of `perf_counter`."""

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Measure a garbage collection, and freeze all objects after a long full collection.

        Python calls this object, which is in `gc.callbacks`, at the start and at the end of each collection.
        """
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
                gc.freeze()  # No garbage is frozen, because a full collection has just removed all of it.


def freeze() -> None:
    """Collect garbage, freeze all objects, and collect garbage again.

    Called before a broker loads its logs, and again before the broker serves clients. Python delays a full collection
    until the number of new objects reaches a quarter of the number of objects that survived the previous full
    collection. All objects are frozen before the second collection, so no object counts as a survivor of the second
    collection, and Python does not delay the next full collection.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_EACH)
    gc.collect()
    gc.freeze()
    gc.collect()
