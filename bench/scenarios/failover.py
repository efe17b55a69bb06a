"""A broker dies or is restarted under load: how long its partitions take no records, and when they have new leaders."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.clients.job import NotRun
from bench.clients.pulse import LibrdkafkaPulse, Pulse, RawPulse
from bench.clusters import SESSION_MS, Cluster
from bench.metrics import Measurement
from bench.scenarios.stand import Stand
from bench.topics import delete

LEAD_IN_S: Final = 0.5
FAILOVER_SECONDS_MAX: Final = 30.0
ELECTION_SECONDS_MAX: Final = 60.0
LOOK_S: Final = 0.005


def others(cluster: Cluster, broker: int) -> list[int]:
    """The ids of all but this one."""
    return [number for number in cluster.brokers if number != broker]


@contextmanager
def led_topic(cluster: Cluster, name: str, assignment: Sequence[Sequence[int]]) -> Iterator[str]:
    """A topic whose partitions have their replicas where this says, the first of them leading."""
    cluster.create_topic(name, len(assignment), assignment=assignment, config={"min.insync.replicas": "2"})
    try:
        yield name
    finally:
        delete(cluster.bootstrap, [name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The leader of two partitions is killed (`crash`) or stopped and started again; one producer on each of the two.

    `controller`: the broker that goes has that office, too.
    """

    crash: bool
    controller: bool = False

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Medians over the repeats in this run; the brokers end as they began."""
        runs = [self._once(stand, peer) for _ in range(stand.limits.failovers)]
        return {name: median(run[name] for run in runs) for name in runs[0]}

    def _once(self, stand: Stand, peer: str) -> Measurement:
        cluster = stand.clusters.standing(peer)
        controller = stand.controller(peer)
        victim = controller if self.controller else others(cluster, controller)[0]
        replicas = [victim, *others(cluster, victim)]
        ports = [broker.port for broker in cluster.brokers.values()]
        with led_topic(cluster, stand.new_topic_name(), [replicas, replicas]) as name:
            with RawPulse(ports, name, 0) as raw, LibrdkafkaPulse(cluster.bootstrap, name, 1) as client:
                pulses: tuple[Pulse, ...] = (raw, client)
                begun_s = time.monotonic()
                time.sleep(LEAD_IN_S)
                for pulse in pulses:
                    pulse.await_beats(begun_s, FAILOVER_SECONDS_MAX)
                gone_s = time.monotonic()
                self._take_away(cluster, victim, pulses)
                measured = {"gap_ms": raw.gap_ms(gone_s), "client_gap_ms": client.gap_ms(gone_s)}
            if not cluster.brokers[victim].running:
                cluster.start(victim)
            cluster.wait_until_full(name)
        return {**measured, "over_session_ms": measured["gap_ms"] - SESSION_MS}

    def _take_away(self, cluster: Cluster, victim: int, pulses: Sequence[Pulse]) -> None:
        """Returns when records are acknowledged again; after a restart, when the broker is back."""
        if self.crash:
            cluster.kill(victim)
        else:
            cluster.restart(victim)
        done_s = time.monotonic()
        for pulse in pulses:
            pulse.await_beats(done_s, FAILOVER_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Elections:
    """The broker that leads all of a topic's partitions is killed: until one that stays names new leaders for all."""

    partitions: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """From the kill to the last leader, and from the first new leader to the last one."""
        cluster = stand.clusters.standing(peer)
        controller = stand.controller(peer)
        victim, stays = others(cluster, controller)
        orders = ([victim, stays, controller], [victim, controller, stays])
        assignment = [orders[number % 2] for number in range(self.partitions)]
        with led_topic(cluster, stand.new_topic_name(), assignment) as name:
            gone_s = time.monotonic()
            cluster.kill(victim)
            first_s, last_s = self._watch(cluster, name, victim, stays)
            cluster.start(victim)
            cluster.wait_until_full(name)
        return {
            "elected_s": last_s - gone_s,
            "spread_ms": (last_s - first_s) * 1e3,
            "over_session_ms": (last_s - gone_s) * 1e3 - SESSION_MS,
        }

    def _watch(self, cluster: Cluster, name: str, victim: int, stays: int) -> tuple[float, float]:
        """When new leaders were first seen, and when all were."""
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
            time.sleep(LOOK_S)
        raise NotRun(f"after {ELECTION_SECONDS_MAX:.0f} s {led} of {self.partitions} partitions have a new leader")
