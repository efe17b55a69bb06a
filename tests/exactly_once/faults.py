"""Faults of the brokers and programs of a proof, in random order by a seed."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from exactly_once.programs import Program
from harness.cluster import RunningCluster

DOWN_S = 2.0
PAUSE_S = (3.0, 8.0)


class Faults:
    """Kills and rolls, each kind in turn, in random order; the programs work for a while after each."""

    def __init__(self, cluster: RunningCluster, programs: Sequence[Program], chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._programs = programs
        self._chance = chance
        self._to_come: list[Callable[[], None]] = []

    def next(self) -> None:
        """Cause one fault, and wait."""
        if not self._to_come:
            self._to_come = [self.kill_broker, self.roll, *([self.kill_program] if self._programs else [])]
            self._chance.shuffle(self._to_come)
        kind = self._to_come.pop()
        kind()
        self.done[kind.__name__] += 1
        self.rest(self._chance.uniform(*PAUSE_S))

    def rest(self, seconds: float) -> None:
        """Let all programs run for this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for program in self._programs:
                program.keep_running()
            time.sleep(0.2)

    def kill_broker(self) -> None:
        """Kill one broker by SIGKILL, and start it again."""
        number = self._chance.choice(sorted(self._cluster.brokers))
        self._cluster.kill(number)
        self.rest(DOWN_S)
        self._cluster.start(number)
        self._cluster.wait_until_full()

    def roll(self) -> None:
        """Restart all brokers, one after the other."""
        for number in self._cluster.brokers:
            self._cluster.restart(number)
            self._cluster.wait_until_full()

    def kill_program(self) -> None:
        """Kill one program by SIGKILL; its successor fences its transactions."""
        self._chance.choice(self._programs).kill()
