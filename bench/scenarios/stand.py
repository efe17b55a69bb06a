"""What every scenario uses: the peers, the load generators and the limits of the run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from bench.clients.java import JavaClient
from bench.clients.job import Counted, Job
from bench.clients.librdkafka import LibrdkafkaClient
from bench.clients.raw import RawClient
from bench.clusters import CLUSTER_KINDS, Cluster
from bench.metrics import Measurement
from bench.peers import PeerKind
from bench.pool import Pool
from bench.secured_broker import SecuredBroker, WayIn, client_settings
from bench.secured_cluster import SecuredCluster
from bench.status import Status
from harness.server_process import ServerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run. `budget_s`: no row begins later; `row_s`: no repeat begins later after the row's first.

    `rows_all`: also rows that a quick run leaves out; `failovers`: how often a broker is killed or restarted in one
    repeat; `move_bytes`: what a replica copies; `watch_s`: how long a throttled copy is watched; `idle_s`: how long a
    cluster rests while its CPU is counted.
    """

    repeats: int
    repeats_slow: int
    run_s: float
    run_bytes_max: int
    round_trips_max: int
    settle_s: float
    load_s: float
    failovers: int
    move_bytes: int
    watch_s: float
    idle_s: float
    warm_up_s: float
    budget_s: float
    row_s: float
    rows_all: bool


QUICK: Final = Limits(
    repeats=2,
    repeats_slow=1,
    run_s=0.8,
    run_bytes_max=400_000_000,
    round_trips_max=2_000,
    settle_s=2.0,
    load_s=3.0,
    failovers=3,
    move_bytes=300_000_000,
    watch_s=4.0,
    idle_s=4.0,
    warm_up_s=8.0,
    budget_s=960.0,
    row_s=120.0,
    rows_all=False,
)
FULL: Final = Limits(
    repeats=3,
    repeats_slow=3,
    run_s=2.0,
    run_bytes_max=1_000_000_000,
    round_trips_max=10_000,
    settle_s=5.0,
    load_s=10.0,
    failovers=3,
    move_bytes=600_000_000,
    watch_s=15.0,
    idle_s=10.0,
    warm_up_s=15.0,
    budget_s=4_500.0,
    row_s=240.0,
    rows_all=True,
)
# Two brokers differ by a few per cent only, so many runs alternate, and other load meets both. In runs of half a
# second the first batches of a connection, which are checked in full, would be most of the cost of large batches.
BEFORE_AND_AFTER: Final = replace(FULL, repeats=12, run_s=2.0, warm_up_s=5.0)


class Client(Protocol):
    """A load generator that runs jobs."""

    def run(self, job: Job, bootstrap: str) -> Counted: ...

    def close(self) -> None: ...


class Clients:
    """The load generators, each built when first used; raises NotRun if one is missing."""

    def __init__(self, prototype: Path) -> None:
        self._prototype = prototype
        self._made: dict[str, Client] = {}
        self._raw: RawClient | None = None

    def librdkafka(self) -> LibrdkafkaClient:
        """Return the C client, for scenarios that run several at once."""
        made = self.named("librdkafka")
        assert isinstance(made, LibrdkafkaClient)
        return made

    def named(self, name: str) -> Client:
        """Return the client `librdkafka` or `Java`."""
        makers: dict[str, Callable[[], Client]] = {"librdkafka": LibrdkafkaClient, "Java": JavaClient}
        if name not in self._made:
            self._made[name] = makers[name]()
        return self._made[name]

    def raw(self) -> RawClient:
        """Return the closed loop of raw requests."""
        self._raw = self._raw or RawClient(self._prototype)
        return self._raw

    def close(self) -> None:
        """End the processes that run between jobs."""
        for client in self._made.values():
            client.close()


@dataclass(frozen=True, slots=True)
class Target:
    """A broker or a cluster under load: `admin` makes topics, by PLAINTEXT; `settings` are what each client needs."""

    bootstrap: str
    pids: tuple[int, ...]
    admin: str
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class Stand:
    """The means of one bench run."""

    kinds: Mapping[str, PeerKind]
    brokers: Pool[ServerProcess]
    clusters: Pool[Cluster]
    secured: Pool[SecuredBroker]
    secured_clusters: Pool[SecuredCluster]
    clients: Clients
    limits: Limits
    status: Status
    _numbers: Iterator[int] = field(default_factory=count)

    def new_topic_name(self) -> str:
        """Return a name that this run has not used."""
        return f"bench-{next(self._numbers)}"

    def target(self, peer: str, replication_factor: int, way_in: WayIn = WayIn.PLAINTEXT) -> Target:
        """Return the standing broker, or the standing cluster if there is more than one replica."""
        if way_in is not WayIn.PLAINTEXT:
            return self._secured_target(peer, replication_factor, way_in)
        if replication_factor == 1:
            server = self.brokers.standing(peer)
            return Target(server.bootstrap, (server.pid,), server.bootstrap)
        cluster = self.clusters.standing(peer)
        return Target(cluster.bootstrap, pids(cluster), cluster.bootstrap)

    def _secured_target(self, peer: str, replication_factor: int, way_in: WayIn) -> Target:
        if replication_factor == 1:
            broker = self.secured.standing(peer)
            settings, process = client_settings(way_in, broker.authority), broker.process
            return Target(broker.bootstrap(way_in), (process.pid,), process.bootstrap, settings)
        secured = self.secured_clusters.standing(peer)
        settings, cluster = client_settings(way_in, secured.authority), secured.cluster
        return Target(secured.bootstrap, pids(cluster), cluster.bootstrap, settings)

    def run(self, client: str, job: Job, target: Target) -> Counted:
        """Run a job to its end with the client of that name, on the target's listener."""
        settings = {**job.settings, **target.settings.get(client, {})}
        return self.clients.named(client).run(replace(job, settings=settings), target.bootstrap)

    def run_together(self, job: Job, target: Target, clients: int) -> Counted:
        """Run the job with so many librdkafka clients at once."""
        with ThreadPoolExecutor(clients) as threads:
            started = [threads.submit(self.run, "librdkafka", job, target) for _ in range(clients)]
            return together([each.result() for each in started])

    def controller(self, peer: str) -> int:
        """Return the id of the standing cluster's current controller."""
        return CLUSTER_KINDS[peer].controller(self.clusters.standing(peer))

    def forget(self, peer: str) -> None:
        """Stop the peer's standing servers, which may be broken."""
        self.brokers.forget(peer)
        self.clusters.forget(peer)
        self.secured.forget(peer)
        self.secured_clusters.forget(peer)

    def clear(self) -> None:
        """Stop all standing servers, so that none runs beside rows of another kind."""
        self.brokers.close()
        self.clusters.close()
        self.secured.close()
        self.secured_clusters.close()


def together(counted: Sequence[Counted]) -> Counted:
    """Return the sums of clients that ran at once, and the seconds of the slowest."""
    sums = {name: sum(each[name] for each in counted) for name in ("records", "bytes", "client_cpu_s")}
    return {**sums, "seconds": max(each["seconds"] for each in counted)}


def pids(cluster: Cluster) -> tuple[int, ...]:
    """Return the processes of the running brokers."""
    return tuple(broker.pid for broker in cluster.brokers.values() if broker.running)


class Scenario(Protocol):
    """The way in which a row is measured."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure one repeat on one peer; raises NotRun."""
        ...
