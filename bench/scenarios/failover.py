"""A broker dies or restarts under load: how long its partitions accept no records, and when they have new leaders."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final

from bench.clients.job import NotRun
from bench.clients.pulse import ANSWER_SECONDS_MAX, LibrdkafkaPulse, Pulse, RawPulse
from bench.clients.spread_load import SpreadLoad
from bench.clusters import Cluster
from bench.metrics import Measurement
from bench.scenarios.stand import Stand
from bench.topics import delete

LEAD_IN_S: Final = 0.5
# The time that a raw request waits for a leader that may hang before it tries the next broker.
HUNG_S: Final = 0.1
FAILOVER_SECONDS_MAX: Final = 30.0
ELECTION_SECONDS_MAX: Final = 60.0
# The time for a new topic to accept records in all partitions on a busy machine.
LOAD_SECONDS_MAX: Final = 180.0
# Each check makes a broker encode a thousand partitions, and this process decode them.
POLL_S: Final = 0.02


def others(cluster: Cluster, broker: int) -> list[int]:
    """Return the ids of all other brokers."""
    return [number for number in cluster.brokers if number != broker]


@contextmanager
def led_topic(cluster: Cluster, name: str, assignment: Sequence[Sequence[int]]) -> Iterator[str]:
    """Make a topic with these replicas; the first replica of each partition leads."""
    cluster.create_topic(name, len(assignment), assignment=assignment, config={"min.insync.replicas": "2"})
    try:
        yield name
    finally:
        delete(cluster.bootstrap, [name])


class Fate(Enum):
    """What happens to the leader."""

    RESTARTED = "SIGTERM, and started again"
    KILLED = "SIGKILL"
    PAUSED = "SIGSTOP: its connections stay open, as when a machine hangs or loses power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The leader of two partitions fails; a producer writes to each of the two.

    `controller`: the failing broker is also the controller. librdkafka waits 60 s for a broker that hangs, whatever the
    other brokers do, so it takes no part if the leader is paused.
    """

    fate: Fate
    controller: bool = False

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return medians over the repeats of this run; the brokers end as they began."""
        runs = [self._once(stand, peer) for _ in range(stand.limits.failovers)]
        return {name: median(run[name] for run in runs) for name in runs[0]}

    def _once(self, stand: Stand, peer: str) -> Measurement:
        cluster = stand.clusters.standing(peer)
        controller = stand.controller(peer)
        victim = controller if self.controller else others(cluster, controller)[0]
        replicas = [victim, *others(cluster, victim)]
        with led_topic(cluster, stand.new_topic_name(), [replicas, replicas]) as name:
            with ExitStack() as running:
                pulses = {metric: running.enter_context(pulse) for metric, pulse in self._pulses(cluster, name)}
                begun_s = time.monotonic()
                time.sleep(LEAD_IN_S)
                _await_beats(pulses.values(), begun_s)
                gone_s = time.monotonic()
                self._take_away(cluster, victim)
                _await_beats(pulses.values(), time.monotonic())
                measured = {metric: pulse.gap_ms(gone_s) for metric, pulse in pulses.items()}
            _bring_back(cluster, victim)
            cluster.wait_until_full(name)
        return measured

    def _pulses(self, cluster: Cluster, topic: str) -> Iterator[tuple[str, Pulse]]:
        paused = self.fate is Fate.PAUSED
        ports = [broker.port for broker in cluster.brokers.values()]
        yield "gap_ms", RawPulse(ports, topic, 0, HUNG_S if paused else ANSWER_SECONDS_MAX)
        if not paused:
            yield "client_gap_ms", LibrdkafkaPulse(cluster.bootstrap, topic, 1)

    def _take_away(self, cluster: Cluster, victim: int) -> None:
        actions = {Fate.RESTARTED: cluster.restart, Fate.KILLED: cluster.kill, Fate.PAUSED: cluster.pause}
        actions[self.fate](victim)


def _await_beats(pulses: Collection[Pulse], since_s: float) -> None:
    for pulse in pulses:
        pulse.await_beats(since_s, FAILOVER_SECONDS_MAX)


def _bring_back(cluster: Cluster, broker: int) -> None:
    if not cluster.brokers[broker].running:
        cluster.start(broker)
    elif broker in cluster.paused:
        cluster.resume(broker)
        cluster.wait_until_joined()


@dataclass(frozen=True, slots=True)
class Elections:
    """The broker that leads all of a topic's partitions is killed: the time until another one names new leaders."""

    partitions: int
    under_load: bool = False
    """If true, a producer writes to all partitions, so that the gap for an application is measured, too."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure from the kill to the last leader, and from the first new leader to the last one."""
        cluster = stand.clusters.standing(peer)
        controller = stand.controller(peer)
        victim, stays = others(cluster, controller)
        orders = ([victim, stays, controller], [victim, controller, stays])
        assignment = [orders[number % 2] for number in range(self.partitions)]
        with led_topic(cluster, stand.new_topic_name(), assignment) as name:
            kill = self._kill_under_load if self.under_load else self._kill
            measured = kill(cluster, name, victim, stays)
            cluster.start(victim)
            cluster.wait_until_full(name)
        return measured

    def _kill(self, cluster: Cluster, name: str, victim: int, stays: int) -> Measurement:
        gone_s = time.monotonic()
        cluster.kill(victim)
        first_s, last_s = self._watch(cluster, name, victim, stays)
        return {"elected_s": last_s - gone_s, "spread_ms": (last_s - first_s) * 1e3}

    def _kill_under_load(self, cluster: Cluster, name: str, victim: int, stays: int) -> Measurement:
        with SpreadLoad(cluster.bootstrap, name, self.partitions) as load:
            load.await_all(time.monotonic(), LOAD_SECONDS_MAX)
            time.sleep(LEAD_IN_S)
            gone_s = time.monotonic()
            measured = self._kill(cluster, name, victim, stays)
            served_s = load.await_all(gone_s, ELECTION_SECONDS_MAX)
        return {**measured, "served_s": served_s - gone_s}

    def _watch(self, cluster: Cluster, name: str, victim: int, stays: int) -> tuple[float, float]:
        """Return when the first new leaders were seen, and when all were."""
        first_s: float | None = None
        deadline = time.monotonic() + ELECTION_SECONDS_MAX
        while time.monotonic() < deadline:
            asked_s = time.monotonic()
            leaders = [view.leader for view in cluster.describe(name, as_told_by=stays)]
            led = sum(leader not in (victim, -1) for leader in leaders)
            if led and first_s is None:
                first_s = asked_s
            if first_s is not None and led == self.partitions:
                return first_s, time.monotonic()
            time.sleep(POLL_S)
        raise NotRun(f"after {ELECTION_SECONDS_MAX:.0f} s {led} of {self.partitions} partitions have a new leader")
