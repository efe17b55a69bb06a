"""Runs a broker that appends the CPU seconds of each turn of its event loop above MIN_S to a file.

`python -m turns.measured_broker TURNS broker server.properties` appends lines of seconds and the name of the longest
work to the file TURNS.
"""

import runpy
import sys
from time import thread_time
from typing import Any, Final

from barnabas_broker.app.loop_turns import MeasuringSelector
from barnabas_core.loop_turns import LONGEST_PART

MIN_S: Final = 0.005


def main() -> None:
    """Run the broker with a selector that measures the CPU time of each turn."""
    path = sys.argv.pop(1)
    select = MeasuringSelector.select
    with open(path, "a", encoding="ascii", buffering=1) as turns:
        began_s = thread_time()

        def measured(selector: MeasuringSelector, timeout: float | None = None) -> Any:
            nonlocal began_s
            took_s = thread_time() - began_s
            if took_s > MIN_S:
                turns.write(f"{took_s:.4f} {LONGEST_PART.what}\n")
            try:
                return select(selector, timeout)
            finally:
                began_s = thread_time()

        MeasuringSelector.select = measured  # type: ignore[assignment,method-assign]
        runpy.run_module("barnabas", run_name="__main__")


if __name__ == "__main__":
    main()
