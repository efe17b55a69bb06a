"""Machines of the simulation: what they run, and what they leave."""

import asyncio
import gc
import warnings
from random import Random

from simulation.loop import Host, SimulatedLoop


def test_what_a_machine_has_not_begun_when_it_dies_is_not_waited_for() -> None:
    loop = SimulatedLoop(Random(0))
    host = Host("b1", loop)
    host.is_paused = True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop.spawn(host, asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(1))
        host.die()
        del host
        loop.close()
        gc.collect()
    assert not [str(each.message) for each in warned if "never awaited" in str(each.message)]
