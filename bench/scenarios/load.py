"""Load on a standing broker: producers, consumers, round trips, raw requests. Each run has its own topic."""

from dataclasses import dataclass
from typing import Final

from bench.clients.job import Counted, Job, NotRun
from bench.clients.raw import RawClient
from bench.metrics import Measurement, throughput
from bench.processes import cpu_seconds
from bench.scenarios.stand import Stand, Target
from bench.secured_broker import WayIn
from bench.topics import topic

PARTITIONS: Final = 6
# Each client needs these settings to reach its limit: a batch size by its own name, a queue that drains in time.
BATCHES: Final = {
    "librdkafka": {"queue.buffering.max.kbytes": "32768", "queue.buffering.max.messages": "1000000"},
    "Java": {"buffer.memory": "67108864"},
}
# Requests have 16 KB a partition: more than the 1 MiB that a raw fetch asks for.
FILL_REQUESTS: Final = 100
FILL_S: Final = 0.2
FILLS_MAX: Final = 25
LINGER_MS: Final = "5"
# With its default, librdkafka waits for a second when its queue is full.
CONSUMERS: Final = {"librdkafka": {"fetch.queue.backoff.ms": "1"}, "Java": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """A producer at full speed, or several of librdkafka at once."""

    client: str
    record_bytes: int
    batch_bytes: int
    codec: str
    acks: str
    partitions: int = PARTITIONS
    replication_factor: int = 1
    way_in: WayIn = WayIn.PLAINTEXT
    clients: int = 1
    zeros: bool = False
    """True for records of zeros instead of half text and half noise."""

    def job(self, name: str, seconds: float, bytes_max: int) -> Job:
        """Return the run on the topic `name`."""
        settings = {
            "acks": self.acks,
            "batch.size": str(self.batch_bytes),
            "compression.type": self.codec,
            "linger.ms": LINGER_MS,
            **BATCHES[self.client],
        }
        return Job(
            mode="zeros" if self.zeros else "produce",
            topic=name,
            partitions=self.partitions,
            record_bytes=self.record_bytes,
            records_max=bytes_max // self.record_bytes,
            seconds_max=seconds,
            settings=settings,
        )

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure on the standing broker or cluster."""
        return self.measure_on(stand, stand.target(peer, self.replication_factor, self.way_in))

    def measure_on(self, stand: Stand, target: Target) -> Measurement:
        """Measure from the first record to the last acknowledgement."""
        bytes_max = stand.limits.run_bytes_max if self.zeros else stand.limits.run_bytes_max // self.clients
        with topic(target.admin, stand.new_topic_name(), self.partitions, self.replication_factor) as name:
            return _throughput(stand, self.client, self.job(name, stand.limits.run_s, bytes_max), target, self.clients)


def _throughput(stand: Stand, client: str, job: Job, target: Target, clients: int) -> Measurement:
    """Run the job with one client or several, and count the brokers' CPU meanwhile."""
    cpu_s = cpu_seconds(*target.pids)
    counted = stand.run(client, job, target) if clients == 1 else stand.run_together(job, target, clients)
    cpu_s = cpu_seconds(*target.pids) - cpu_s
    return throughput(counted["bytes"], counted["seconds"], cpu_s, counted["client_cpu_s"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume:
    """One consumer, or each of several, reads a topic that was just filled, so from the page cache."""

    client: str
    record_bytes: int
    codec: str
    partitions: int = PARTITIONS
    replication_factor: int = 1
    way_in: WayIn = WayIn.PLAINTEXT
    clients: int = 1

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure on the standing broker or cluster."""
        return self.measure_on(stand, stand.target(peer, self.replication_factor, self.way_in))

    def measure_on(self, stand: Stand, target: Target) -> Measurement:
        """Measure from the first request to the last record."""
        with topic(target.admin, stand.new_topic_name(), self.partitions, self.replication_factor) as name:
            filled = self._fill(stand, name, target)
            job = Job(
                mode="consume",
                topic=name,
                partitions=self.partitions,
                record_bytes=self.record_bytes,
                records_max=int(filled["records"]),
                seconds_max=stand.limits.run_s * 10,
                settings=CONSUMERS[self.client],
            )
            return _throughput(stand, self.client, job, target, self.clients)

    def _fill(self, stand: Stand, name: str, target: Target) -> Counted:
        filler = Produce(
            client="librdkafka",
            record_bytes=self.record_bytes,
            batch_bytes=200_000,
            codec=self.codec,
            acks="all",
            partitions=self.partitions,
        )
        job = filler.job(name, stand.limits.run_s * 3, stand.limits.run_bytes_max)
        return stand.run("librdkafka", job, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips:
    """One record of 1 KB at a time: `in-flight` until the acknowledgement, `poll` until the consumer gets it."""

    client: str
    mode: str
    acks: str
    replication_factor: int = 1
    way_in: WayIn = WayIn.PLAINTEXT

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return the client's percentiles."""
        target = stand.target(peer, self.replication_factor, self.way_in)
        with topic(target.admin, stand.new_topic_name(), 1, self.replication_factor) as name:
            job = Job(
                mode=self.mode,
                topic=name,
                partitions=1,
                record_bytes=1000,
                records_max=stand.limits.round_trips_max,
                seconds_max=stand.limits.run_s * 4,
                settings={"acks": self.acks, "linger.ms": "0"},
            )
            counted = stand.run(self.client, job, target)
            return {"p50_us": counted["p50_us"], "p99_us": counted["p99_us"]}


@dataclass(frozen=True, slots=True)
class RawLoad:
    """The same prepared request in a closed loop; `fill` is a request that fills the topic before, unmeasured."""

    request: str
    connections: int
    topic: str
    partitions: int
    fill: str | None = None

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return requests a second and percentiles from the load generator."""
        server = stand.brokers.standing(peer)
        if not stand.kinds[peer].has_topics:
            try:
                return self._run(stand, peer)
            finally:
                stand.brokers.forget(peer)  # This also deletes the files.
        with topic(server.bootstrap, self.topic, self.partitions):
            return self._run(stand, peer)

    def _run(self, stand: Stand, peer: str) -> Measurement:
        server = stand.brokers.standing(peer)
        client = stand.clients.raw()
        if self.fill:
            _fill(client, self.fill, server.port)
        cpu_s = cpu_seconds(server.pid)
        counted = client.run(self.request, self.connections, stand.limits.run_s, server.port)
        cpu_s = cpu_seconds(server.pid) - cpu_s
        rates = {name: counted[name] for name in ("requests_per_s", "p50_us", "p99_us")}
        requests = counted["requests"]
        if not requests:
            raise NotRun(f"no request was answered within {stand.limits.run_s} s")
        return {**rates, "requests_per_cpu_s": requests / cpu_s, "cpu_us_per_request": cpu_s / requests * 1e6}


def _fill(client: RawClient, request: str, port: int) -> None:
    """Fill every partition with more than a fetch returns, so that a slow broker cannot send smaller responses."""
    sent = 0.0
    for _ in range(FILLS_MAX):
        sent += client.run(request, 1, FILL_S, port)["requests"]
        if sent >= FILL_REQUESTS:
            return
    raise NotRun(f"{FILLS_MAX * FILL_S:.0f} s were too short to fill the topic")
