"""Transactions of the Java client: written at full speed, and as an exactly-once copy of a topic."""

from dataclasses import dataclass
from typing import Final

from bench.clients.job import Job
from bench.metrics import Measurement, throughput
from bench.processes import cpu_seconds
from bench.scenarios.load import PARTITIONS, Produce
from bench.scenarios.stand import Stand, Target
from bench.topics import topic

CLIENT: Final = "Java"
RECORD_BYTES: Final = 1000
RUNS: Final = 4
"""These runs are this many times longer than others: two seconds have few commits if a transaction takes one."""
ISOLATED: Final = {"buffer.memory": "67108864"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """A transactional producer at full speed that commits every `commit_ms`."""

    commit_ms: int
    replication_factor: int = 1

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure throughput, and how long EndTxn takes once the records of its transaction are acknowledged."""
        target = stand.target(peer, self.replication_factor)
        with topic(target.admin, stand.new_topic_name(), PARTITIONS, self.replication_factor) as name:
            job = _job("transact", name, stand, {"bench.commit.ms": str(self.commit_ms)})
            return _measured(stand, target, job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A topic that was just filled is copied to another one; offsets and records are committed together."""

    commit_ms: int
    replication_factor: int = 1

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure from the first poll to the last commit."""
        target = stand.target(peer, self.replication_factor)
        factor = self.replication_factor
        with (
            topic(target.admin, stand.new_topic_name(), PARTITIONS, factor) as name,
            topic(target.admin, stand.new_topic_name(), PARTITIONS, factor) as copy,
        ):
            _fill(stand, name, target)
            settings = {"bench.commit.ms": str(self.commit_ms), "bench.to": copy}
            return _measured(stand, target, _job("copy", name, stand, settings))


def _job(mode: str, name: str, stand: Stand, settings: dict[str, str]) -> Job:
    return Job(
        mode=mode,
        topic=name,
        partitions=PARTITIONS,
        record_bytes=RECORD_BYTES,
        records_max=stand.limits.run_bytes_max // RECORD_BYTES,
        seconds_max=stand.limits.run_s * RUNS,
        settings={**ISOLATED, **settings},
    )


def _fill(stand: Stand, name: str, target: Target) -> None:
    filler = Produce(client=CLIENT, record_bytes=RECORD_BYTES, batch_bytes=200_000, codec="none", acks="all")
    job = filler.job(name, stand.limits.run_s * RUNS, stand.limits.run_bytes_max)
    stand.run(CLIENT, job, target)


def _measured(stand: Stand, target: Target, job: Job) -> Measurement:
    cpu_s = cpu_seconds(*target.pids)
    counted = stand.run(CLIENT, job, target)
    broker_cpu_s = cpu_seconds(*target.pids) - cpu_s
    records = counted["records"] / counted["seconds"]
    load = throughput(counted["bytes"], counted["seconds"], broker_cpu_s, counted["client_cpu_s"])
    ends = {name: counted[name] for name in ("p50_us", "p99_us")}
    return {**load, **ends, "records_per_s": records}
