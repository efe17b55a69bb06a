"""The faults of a broker, its disk and its network. A fault begins, holds for a while, and is undone."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from kafka.protocol.admin import DescribeClusterRequest

from harness.cluster import BarnabasCluster
from harness.kafka_cluster import KafkaCluster
from harness.machines import CLIENTS, Lan
from local_kubernetes.control_plane import ControlPlane

SESSION_TIMEOUT_S: Final = 3.0
BALLAST: Final = "ballast"
BALLAST_PIECES_BYTES: Final = (1 << 24, 1 << 20, 1 << 12)

SECOND_FAULT_PROBABILITY: Final = 0.35

Undo = Callable[[], None]


@dataclass
class Arena:
    """The brokers under torture.

    `lan` is None if this machine allows no machines inside. `api_server` has their metadata, or is None if a file
    has it.
    """

    cluster: BarnabasCluster | KafkaCluster
    lan: Lan | None
    topics: tuple[str, ...]
    problems: list[str]
    api_server: ControlPlane | None = None

    def log_dir(self, number: int) -> Path:
        """Return the path at which this process finds a broker's log dir."""
        path = self.cluster.log_dirs(number)[0]
        return self.lan.machines[number].seen_from_outside(path) if self.lan else path

    def others(self, victim: int) -> list[int]:
        """Return the other brokers."""
        return [number for number in self.cluster.brokers if number != victim]

    def controller(self) -> int:
        """Return the broker that is the controller."""
        return int(self.cluster.ask(self.cluster.running[0], DescribeClusterRequest(), 0).controller_id)

    def leader(self, chance: random.Random) -> int:
        """Return the leader of a busy partition."""
        leaders = [view.leader for view in self.cluster.describe(*self.topics) if view.leader >= 0]
        return chance.choice(leaders)


def _kill(arena: Arena, victim: int, _: random.Random) -> Undo:
    arena.cluster.kill(victim)
    return arena.cluster.brokers[victim].launch


def _restart(arena: Arena, victim: int, _: random.Random) -> Undo:
    status = arena.cluster.stop(victim)
    if status != arena.cluster.status_of_stop:
        arena.problems.append(f"bad end: broker {victim} ended with {status} on SIGTERM")
    return arena.cluster.brokers[victim].launch


def _pause(arena: Arena, victim: int, _: random.Random) -> Undo:
    arena.cluster.pause(victim)
    return lambda: arena.cluster.resume(victim)


def _fill_disk(arena: Arena, victim: int, _: random.Random) -> Undo:
    """Fill the disk to the last page while the broker writes: its next append fails, torn or whole."""
    ballast = arena.log_dir(victim) / BALLAST
    with ballast.open("wb") as file:
        for size_bytes in BALLAST_PIECES_BYTES:
            with suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size_bytes)
    return ballast.unlink


def _cut(*pairs: tuple[int, int]) -> Callable[[Arena], Undo]:
    def cut(arena: Arena) -> Undo:
        assert arena.lan is not None
        for source, target in pairs:
            arena.lan.cut(source, target)
        return arena.lan.mend

    return cut


def _from_a_peer(arena: Arena, victim: int, chance: random.Random) -> Undo:
    peer = chance.choice(arena.others(victim))
    return _cut((victim, peer), (peer, victim))(arena)


def _to_a_peer(arena: Arena, victim: int, chance: random.Random) -> Undo:
    return _cut((victim, chance.choice(arena.others(victim))))(arena)


def _from_all_peers(arena: Arena, victim: int, _: random.Random) -> Undo:
    others = arena.others(victim)
    return _cut(*((victim, peer) for peer in others), *((peer, victim) for peer in others))(arena)


def _to_all_peers(arena: Arena, victim: int, _: random.Random) -> Undo:
    return _cut(*((victim, peer) for peer in arena.others(victim)))(arena)


def _by_all_peers(arena: Arena, victim: int, _: random.Random) -> Undo:
    return _cut(*((peer, victim) for peer in arena.others(victim)))(arena)


def _from_clients(arena: Arena, victim: int, _: random.Random) -> Undo:
    return _cut((CLIENTS, victim), (victim, CLIENTS))(arena)


def _to_clients(arena: Arena, victim: int, _: random.Random) -> Undo:
    """Cut the way to the clients: requests arrive and are carried out, and the answers are lost."""
    return _cut((victim, CLIENTS))(arena)


def _from_everybody(arena: Arena, victim: int, chance: random.Random) -> Undo:
    _from_clients(arena, victim, chance)
    return _from_all_peers(arena, victim, chance)


def _stop_api_server(arena: Arena, _victim: int, _: random.Random) -> Undo:
    """Stop the API server: connections are refused."""
    assert arena.api_server is not None
    api_server = arena.api_server
    api_server.stop_api_server()

    def undo() -> None:
        api_server.start_api_server()
        api_server.await_ready()

    return undo


def _freeze_api_server(arena: Arena, _victim: int, _: random.Random) -> Undo:
    """Freeze the API server: connections stay open without answers."""
    assert arena.api_server is not None
    daemons = arena.api_server.daemons
    daemons.send("kube-apiserver", signal.SIGSTOP)
    return lambda: daemons.send("kube-apiserver", signal.SIGCONT)


def any_broker(arena: Arena, chance: random.Random) -> int:
    """Return any broker."""
    return chance.choice(list(arena.cluster.brokers))


def _controller(arena: Arena, chance: random.Random) -> int:
    try:
        return arena.controller()
    except OSError:  # It is cut off or paused already; another will do.
        return any_broker(arena, chance)


def _leader(arena: Arena, chance: random.Random) -> int:
    try:
        return arena.leader(chance)
    except (OSError, KafkaException, IndexError):
        return any_broker(arena, chance)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    `begin` starts it on a victim and returns how it is undone; it holds between two bounds of seconds.
    """

    begin: Callable[[Arena, int, random.Random], Undo]
    hold_s: tuple[float, float]
    victim: Callable[[Arena, random.Random], int] = any_broker
    needs_machines: bool = False
    needs_api_server: bool = False

    def is_usable(self, arena: Arena) -> bool:
        """True if the arena has what this fault needs."""
        has_machines, has_api_server = arena.lan is not None, arena.api_server is not None
        return (has_machines or not self.needs_machines) and (has_api_server or not self.needs_api_server)


_SHORT: Final = (0.1, 1.0)
_LONG: Final = (SESSION_TIMEOUT_S + 0.5, SESSION_TIMEOUT_S + 2.0)
# At times this is longer than replica.lag.time.max.ms of the run, so ISRs shrink.
_WHILE: Final = (0.5, 4.5)
# This is up to three sessions.
_OUTAGE: Final = (0.5, 3 * SESSION_TIMEOUT_S)

FAULTS: Final[Mapping[str, Fault]] = {
    "kill -9 of a broker": Fault(_kill, _WHILE),
    "kill -9 of a broker, back at once": Fault(_kill, (0.0, 0.0)),
    "kill -9 of the controller": Fault(_kill, _WHILE, _controller),
    "kill -9 of the leader of a busy partition": Fault(_kill, _WHILE, _leader),
    "short pause": Fault(_pause, _SHORT),
    "pause longer than the session": Fault(_pause, _LONG),
    "pause of a leader longer than the session": Fault(_pause, _LONG, _leader),
    "pause of the controller longer than the session": Fault(_pause, _LONG, _controller),
    "controlled restart": Fault(_restart, _SHORT),
    "controlled restart of the controller": Fault(_restart, _SHORT, _controller),
    "full disk": Fault(_fill_disk, _WHILE, needs_machines=True),
    "cut between two brokers": Fault(_from_a_peer, _WHILE, needs_machines=True),
    "one-way cut between two brokers": Fault(_to_a_peer, _WHILE, needs_machines=True),
    "cut from all brokers": Fault(_from_all_peers, _WHILE, _leader, needs_machines=True),
    "one-way cut, to all brokers": Fault(_to_all_peers, _WHILE, _leader, needs_machines=True),
    "one-way cut, by all brokers": Fault(_by_all_peers, _WHILE, _leader, needs_machines=True),
    "cut from the clients": Fault(_from_clients, _WHILE, _leader, needs_machines=True),
    "one-way cut, to the clients": Fault(_to_clients, _WHILE, _leader, needs_machines=True),
    "cut from everybody": Fault(_from_everybody, _WHILE, _leader, needs_machines=True),
    "API server stopped": Fault(_stop_api_server, _OUTAGE, needs_api_server=True),
    "API server frozen": Fault(_freeze_api_server, _OUTAGE, needs_api_server=True),
}


def drawn(names: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """Draw one of these faults, or sometimes two. There is one API server: if it is stopped it cannot be frozen."""
    count = 2 if chance.random() < SECOND_FAULT_PROBABILITY and len(names) > 1 else 1
    found = chance.sample(names, count)
    are_its_own = all(FAULTS[name].needs_api_server for name in found)
    return tuple(found[:1] if are_its_own else found)


def inflict(arena: Arena, names: tuple[str, ...], chance: random.Random) -> list[str]:
    """Begin the faults shortly after each other, each on a broker of its own, and undo them in any order."""
    victims: list[int] = []
    undoing: list[Undo] = []
    told: list[str] = []
    hold_s = 0.0
    try:
        for name in names:
            fault = FAULTS[name]
            victim = fault.victim(arena, chance)
            if victim in victims:
                victim = chance.choice([number for number in arena.cluster.brokers if number not in victims])
            victims.append(victim)
            undoing.append(fault.begin(arena, victim, chance))
            told.append(f"{name} ({victim})")
            time.sleep(chance.uniform(0.0, 0.5))
            hold_s = max(hold_s, chance.uniform(*fault.hold_s))
        time.sleep(hold_s)
    finally:
        chance.shuffle(undoing)
        for undo in undoing:
            undo()
            time.sleep(chance.uniform(0.0, 0.2))
    return told
