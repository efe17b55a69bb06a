"""Share groups (KIP-932): how fast records are worked off, how long one takes, and what idle groups cost."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from bench.clients.share_members import ShareFleet, Way
from bench.metrics import Measurement
from bench.processes import cpu_seconds, family, rss_mb
from bench.scenarios.consumer_groups import fresh
from bench.scenarios.stand import Stand
from bench.topics import create

GROUP: Final = "workers"
TOPIC: Final = "tasks"
VALUE_BYTES: Final = 1024
WARM_UP: Final = 4
"""The warm-up works off one record in so many of the measured ones."""
SETTINGS: Final = {
    "group.share.max.session.timeout.ms": 3_600_000,
    "group.share.session.timeout.ms": 3_600_000,
}
"""No member is fenced while it sends no heartbeat."""


@dataclass(frozen=True, slots=True)
class WorkOff:
    """Members of one group take all records of one partition, and acknowledge each or whole batches."""

    members: int
    records: int
    way: Way

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the records a second, by the clock and by the CPU time of the broker, and its memory afterwards."""
        with fresh(stand, peer, SETTINGS) as server:
            create(server.bootstrap, [TOPIC], 1)
            with closing(ShareFleet(server.port, TOPIC)) as fleet:
                fleet.begin_at_earliest(GROUP)
                stand.status.step(f"{self.members} members join")
                for _ in range(self.members):
                    fleet.join(GROUP)
                warm_up = self.records // WARM_UP
                fleet.produce(warm_up, VALUE_BYTES)
                fleet.work_off(GROUP, warm_up, self.way)
                fleet.rest()
                stand.status.step("records are written")
                fleet.produce(self.records, VALUE_BYTES)
                stand.status.step("records are worked off")
                done, cpu_s = fleet.finished(GROUP), cpu_seconds(*family(server.pid))
                took_s = fleet.work_off(GROUP, warm_up + self.records, self.way)
                used_s = cpu_seconds(*family(server.pid)) - cpu_s
                count = fleet.finished(GROUP) - done
                speeds = {"records_per_s": count / took_s, "records_per_cpu_s": count / max(used_s, 0.001)}
                return {**speeds, "rss_mb": rss_mb(server.pid)}


@dataclass(frozen=True, slots=True)
class Turnaround:
    """One record after the other is written, delivered to a member that waits, and acknowledged."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the time from the first byte of a Produce to the answer of its acknowledgement."""
        with fresh(stand, peer, SETTINGS) as server:
            create(server.bootstrap, [TOPIC], 1)
            with closing(ShareFleet(server.port, TOPIC)) as fleet:
                fleet.begin_at_earliest(GROUP)
                member, taken_us = fleet.join(GROUP), list[float]()
                rounds = stand.limits.round_trips_max
                for _ in range(rounds // WARM_UP + rounds):
                    member.fetch()
                    begun_s = time.perf_counter()
                    fleet.produce(1, VALUE_BYTES)
                    while not member.receive():
                        member.fetch()
                    member.acknowledge_one()
                    member.receive()
                    taken_us.append((time.perf_counter() - begun_s) * 1e6)
                measured = sorted(taken_us[rounds // WARM_UP :])
                return {"p50_us": measured[len(measured) // 2], "p99_us": measured[len(measured) * 99 // 100]}


@dataclass(frozen=True, slots=True)
class IdleGroups:
    """Many share groups with a member each, which has read the partition to its end and waits no more."""

    groups: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the growth of memory with the groups, and the CPU time until each group has its partition."""
        with fresh(stand, peer, SETTINGS) as server:
            create(server.bootstrap, [TOPIC], 1)
            with closing(ShareFleet(server.port, TOPIC)) as fleet:
                fleet.join("first")
                before_mb, cpu_s = rss_mb(server.pid), cpu_seconds(*family(server.pid))
                stand.status.step(f"{self.groups:,} groups")
                for number in range(self.groups):
                    member = fleet.join(f"group-{number}")
                    member.fetch(wait_ms=0)
                    member.receive()
                used_s = cpu_seconds(*family(server.pid)) - cpu_s
                time.sleep(stand.limits.settle_s)
                grown_mb = rss_mb(server.pid) - before_mb
                return {"grown_mb": max(grown_mb, 0.1), "cpu_s": used_s, "rss_mb": rss_mb(server.pid)}
