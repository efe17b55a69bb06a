"""Consumer groups of KIP-848: how long rebalances take, and what heartbeats cost."""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.clients.consumer_members import Fleet
from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.processes import cpu_seconds, family, rss_mb
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed, ServerProcess

GROUP: Final = "readers"
TOPIC: Final = "read"
INTERVAL_S: Final = 1.0
SESSION_S: Final = 8.0
SETTINGS: Final = {
    "group.consumer.min.heartbeat.interval.ms": int(INTERVAL_S * 1000),
    "group.consumer.heartbeat.interval.ms": int(INTERVAL_S * 1000),
    "group.consumer.min.session.timeout.ms": int(SESSION_S * 1000),
    "group.consumer.session.timeout.ms": int(SESSION_S * 1000),
}
"""Both servers get these: the defaults are 5 s and 45 s, and each figure would be longer by the same."""
REST_S: Final = 13.0
"""The time after which Barnabas expects no more changes of a group, and lets members come at their interval again."""
LONG_SESSIONS: Final = {
    "group.consumer.max.session.timeout.ms": 3_600_000,
    "group.consumer.session.timeout.ms": 3_600_000,
}
"""No member is fenced while thousands of others join."""
ROUNDS: Final = 3
TOPICS_A_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class Rebalances:
    """One member joins a group at rest, another one joins, one leaves, one dies, and all are replaced one by one."""

    members: int
    partitions: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the seconds until each partition is consumed again, and the share of them that stopped for a join."""
        with fresh(stand, peer, SETTINGS) as server:
            create(server.bootstrap, [TOPIC], self.partitions)
            with closing(Fleet(server.port, TOPIC, self.partitions)) as fleet:
                stand.status.step(f"{self.members} members join")
                for number in range(self.members):
                    fleet.join(GROUP, f"m{number:04}")
                fleet.until(fleet.is_settled)
                fleet.rest(REST_S)
                fleet.join(GROUP, "after-a-rest")
                rest_join_s = fleet.until(fleet.is_settled)
                return {"rest_join_s": rest_join_s, **self._one_by_one(fleet), **self._roll(fleet)}

    def _one_by_one(self, fleet: Fleet) -> Measurement:
        fleet.lost.clear()
        fleet.stopped_s = 0.0
        fleet.join(GROUP, "one-more")
        join_s = fleet.until(fleet.is_settled)
        stopped, stopped_s = 100 * len(fleet.lost) / self.partitions, fleet.stopped_s
        fleet.leave(fleet.members[0])
        leave_s = fleet.until(fleet.is_settled)
        fleet.die(fleet.members[0])
        die_s = fleet.until(fleet.is_settled) - SESSION_S
        joining = {"join_s": join_s, "stopped_percent": stopped, "stopped_s": max(stopped_s, 0.001)}
        return {**joining, "leave_s": leave_s, "die_s": max(die_s, 0.001)}

    def _roll(self, fleet: Fleet) -> Measurement:
        begun_s = time.monotonic()
        for number, member in enumerate(list(fleet.members)):
            fleet.leave(member)
            fleet.join(GROUP, f"n{number:04}")
        fleet.until(fleet.is_settled)
        return {"roll_s": time.monotonic() - begun_s}


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Many groups with a member each, and one large group, on one broker."""

    groups: int
    members: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the growth of memory with the groups, and the CPU time of a heartbeat that changes nothing."""
        with fresh(stand, peer, LONG_SESSIONS) as server:
            create(server.bootstrap, [TOPIC], 1)
            with closing(Fleet(server.port, TOPIC, 1)) as fleet:
                fleet.join("first", "first")
                before_mb = rss_mb(server.pid)
                stand.status.step(f"{self.groups:,} groups, and {self.members:,} members of one")
                for number in range(self.groups):
                    fleet.join(f"group-{number}", f"member-{number}")
                for number in range(self.members):
                    fleet.join(GROUP, f"member-{number}")
                time.sleep(stand.limits.settle_s)
                grown_mb = rss_mb(server.pid) - before_mb
                stand.status.step("heartbeats")
                return {"grown_mb": max(grown_mb, 0.1), "beat_us": _cpu_of_a_beat_us(server, fleet)}


@dataclass(frozen=True, slots=True)
class Expressions:
    """Members of one group that start together and subscribe to many topics, each by its own regular expression."""

    topics: int
    members: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the seconds until all topics are consumed, and another one that is made; the CPU time of both."""
        with fresh(stand, peer, SETTINGS) as server:
            names = [f"t{number % self.members:03}-{number}" for number in range(self.topics)]
            stand.status.step(f"{self.topics:,} topics are made")
            create(server.bootstrap, names, 1, topics_per_request=TOPICS_A_REQUEST)
            with closing(Fleet(server.port, "", self.topics)) as fleet:
                stand.status.step(f"{self.members} members join")
                begun_s, cpu_s = time.monotonic(), cpu_seconds(*family(server.pid))
                fleet.join_together(GROUP, {f"m{number:03}": f"t{number:03}-.*" for number in range(self.members)})
                fleet.until(fleet.consumes_all)
                taken_s = time.monotonic() - begun_s
                create(server.bootstrap, ["t000-late"], 1)
                fleet.partitions += 1
                late_s = fleet.until(fleet.consumes_all)
                used_s = cpu_seconds(*family(server.pid)) - cpu_s
                return {"taken_s": taken_s, "late_s": late_s, "cpu_s": used_s}


def _cpu_of_a_beat_us(server: ServerProcess, fleet: Fleet) -> float:
    for member in fleet.members:  # The members of the large group get the epoch that they have to.
        member.beat()
    begun_s = cpu_seconds(*family(server.pid))
    for _ in range(ROUNDS):
        for member in fleet.members:
            member.beat()
    return (cpu_seconds(*family(server.pid)) - begun_s) * 1e6 / (ROUNDS * len(fleet.members))


@contextmanager
def fresh(stand: Stand, peer: str, settings: Mapping[str, int]) -> Iterator[ServerProcess]:
    """Run a new server with more settings. Raises NotRun if it does not start."""
    server, folder = stand.brokers.fresh(peer)
    try:
        _add_settings(folder / "server.properties", settings)
        server.start()
        yield server
    except ServerFailed as failure:
        raise NotRun(str(failure)[-500:]) from None
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _add_settings(config: Path, settings: Mapping[str, int]) -> None:
    with config.open("a", encoding="utf-8") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in settings.items())
