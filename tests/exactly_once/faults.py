"""Faults of the brokers and programs of proofs, in random order by a seed, and the proofs that run under them."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from exactly_once.programs import Program
from harness.cluster import RunningCluster

DOWN_S = 2.0
PAUSE_S = (3.0, 8.0)
FINISH_S = 600.0
LATE_S = 10.0
"""The time after the end in which duplicates would come."""


class Proof(Protocol):
    """Programs that read and write, and the check of what they have written."""

    @property
    def programs(self) -> Sequence[Program]:
        """Return the programs, which are started, and killed now and then."""

    def go_on(self) -> int:
        """Write if there is more to write, and read; return a number that changes while there is progress."""

    def is_done(self) -> bool:
        """True if all that was written has come out."""

    def extend(self) -> None:
        """Write more than was asked for, if the programs can go on, because more faults are to come."""

    def problems(self) -> list[str]:
        """Print what was done, and return what is wrong."""


class Faults:
    """Kills and rolls, each kind in turn, in random order; the programs work for a while after each."""

    def __init__(self, cluster: RunningCluster, programs: Sequence[Program], chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self.programs = programs
        self._chance = chance
        self._to_come: list[Callable[[], None]] = []

    @property
    def kills(self) -> int:
        """Return how many brokers and programs were killed."""
        return self.done["kill_broker"] + self.done["kill_program"]

    def next(self) -> None:
        """Cause one fault, and wait."""
        if not self._to_come:
            self._to_come = [self.kill_broker, self.roll, *([self.kill_program] if self.programs else [])]
            self._chance.shuffle(self._to_come)
        kind = self._to_come.pop()
        kind()
        self.done[kind.__name__] += 1
        self.rest(self._chance.uniform(*PAUSE_S))

    def rest(self, seconds: float) -> None:
        """Let all programs run for this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for program in self.programs:
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
        self._chance.choice(self.programs).kill()


def run(cluster: RunningCluster, proofs: Sequence[Proof], chance: random.Random, kills: int = 0) -> list[str]:
    """Run proofs beside each other until they are done, under so many kills at least; return the problems."""
    faults = Faults(cluster, [program for proof in proofs for program in proof.programs], chance)
    progress, grown = [0], time.monotonic()
    try:
        while faults.kills < kills or not all(proof.is_done() for proof in proofs):
            if faults.kills < kills:
                for proof in proofs:
                    proof.extend()
            faults.next()
            before, progress = progress, [proof.go_on() for proof in proofs]
            grown = time.monotonic() if progress != before else grown
            if time.monotonic() - grown > FINISH_S:
                break
        faults.rest(LATE_S)
        for proof in proofs:
            proof.go_on()
    finally:
        for program in faults.programs:
            program.kill()
    starts = ", ".join(f"{program.name} started {program.starts} times" for program in faults.programs)
    print(f"{faults.kills} kills, {faults.done['roll']} rolls: {starts}", flush=True)
    return [wrong for proof in proofs for wrong in proof.problems()]
