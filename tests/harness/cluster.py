"""Runs several real brokers as processes of this machine: starts, kills, pauses, restarts and asks them.

    with barnabas_cluster(folder, brokers=3) as cluster:
        cluster.create_topic("flights", partitions=6, replication_factor=3)
        cluster.kill(cluster.leader("flights", 0))

A broker keeps its number, port, files and settings over restarts. Brokers end with the test, however that ends.
"""

import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from harness.ask import ask
from harness.barnabas_server import metric, page, prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import HERE, Place, ServerProcess, free_port
from harness.stock_client import StockClient

REPLICAS_OF_OFFSETS_MAX = 3
METADATA_VERSION = 12
REASSIGNMENTS_VERSION = 0
DESCRIBE_CLUSTER_VERSION = 0


class PartitionView(NamedTuple):
    """The state of one partition as a broker reports it; `leader` is -1 if there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """True if every replica is in sync and one of them leads."""
        return self.leader in self.isr and set(self.isr) == set(self.replicas)


class RunningCluster:
    """Brokers by their ids. Methods that use only Kafka's protocol work with Apache Kafka's processes, too."""

    status_of_stop = 0
    """The exit status of a broker that ends in order on SIGTERM."""

    def __init__(self, brokers: Mapping[int, ServerProcess]) -> None:
        self.brokers = dict(brokers)
        self.paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, also of those that are down."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        """Return the ids of the brokers that are up and not paused."""
        return [number for number, broker in self.brokers.items() if broker.running and number not in self.paused]

    def client(self) -> StockClient:
        """Return a librdkafka client that knows all brokers."""
        return StockClient(self.bootstrap)

    def start(self, *numbers: int) -> None:
        """Start these brokers (or all), and return when every running broker counts every other as alive."""
        for number in numbers or self.brokers:
            self.brokers[number].launch()
        for number in numbers or self.brokers:
            self.brokers[number].await_port()
        self.wait_until_joined()

    def stop(self, number: int) -> int:
        """Stop a broker by SIGTERM, which moves its leadership first; return the exit status."""
        return self.brokers[number].stop()

    def kill(self, number: int) -> None:
        """Kill a broker by SIGKILL."""
        self.brokers[number].kill()
        self.paused.discard(number)

    def pause(self, number: int) -> None:
        """Pause a broker by SIGSTOP."""
        self.brokers[number].pause()
        self.paused.add(number)

    def resume(self, number: int) -> None:
        """Let a paused broker run again by SIGCONT."""
        self.brokers[number].resume()
        self.paused.discard(number)

    def restart(self, number: int) -> None:
        """Stop a broker in order and start it on the same port; return when all running ones count it as alive."""
        self.stop(number)
        self.start(number)

    def close(self) -> None:
        """End all processes that still run; for clean-up."""
        for broker in self.brokers.values():
            broker.close()
        self.paused.clear()

    def ask(self, number: int, request: Any, version: int) -> Any:
        """Return one broker's answer to a request of `kafka.protocol`. Raises OSError if it does not answer in time."""
        return ask(self.brokers[number].port, request, version, host=self.brokers[number].host)

    def _alive(self, as_told_by: int) -> set[int]:
        """Return the brokers that this one counts as alive; none if it does not answer."""
        with suppress(OSError):
            answer = self.ask(as_told_by, DescribeClusterRequest(), DESCRIBE_CLUSTER_VERSION)
            return {broker.broker_id for broker in answer.brokers}
        return set()

    def wait_until_joined(self, seconds_max: float = PATIENCE_S) -> None:
        """Wait until each running broker counts all running ones as alive. Raises AssertionError after the deadline."""
        expected = set(self.running)
        wait_for(
            lambda: {number: self._alive(number) for number in expected},
            lambda told: all(expected <= alive for alive in told.values()),
            seconds_max,
        )

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic; return when every running broker has all its replicas in sync.

        `assignment` has a list of brokers for each partition.
        """
        self.client().create_topic(
            topic, partitions, config, replication_factor=replication_factor, assignment=assignment
        )
        self.wait_until_full(topic)

    def describe(self, *topics: str, as_told_by: int | None = None) -> list[PartitionView]:
        """Return the partitions of these topics (or of all), as one broker (by default the first) has them."""
        told_by = self.running[0] if as_told_by is None else as_told_by
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics] if topics else None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.ask(told_by, request, METADATA_VERSION)
        return sorted(
            PartitionView(
                topic.name,
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
            )
            for topic in answer.topics
            for part in topic.partitions
        )

    def partition(self, topic: str, partition: int, as_told_by: int | None = None) -> PartitionView:
        """Return one partition."""
        found = self.describe(topic, as_told_by=as_told_by)
        return next(view for view in found if view.partition == partition)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition; -1 if there is none."""
        return self.partition(topic, partition).leader

    def reassign(self, topic: str, replicas: list[int] | None, partition: int = 0) -> int:
        """Start to move a partition, even to a broker that is down, or cancel its move; return the error code.

        The request goes to the broker that `describe` asks. An admin client that connects after a death may choose
        the dead broker, which Metadata names for one more session.
        """
        wanted = AlterPartitionReassignmentsRequest.ReassignableTopic
        moved = wanted.ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[wanted(name=topic, partitions=[moved])], timeout_ms=30_000)
        answer = self.ask(self.running[0], request, REASSIGNMENTS_VERSION)
        return int(answer.responses[0].partitions[0].error_code)

    def wait_until_full(self, *topics: str, seconds_max: float = PATIENCE_S) -> None:
        """Wait until every running broker reports all replicas of these topics (or of all) as in sync."""
        wait_for(
            lambda: [self._told(number, topics) for number in self.running],
            lambda told: all(views is not None and _all_full(topics, views) for views in told),
            seconds_max,
        )

    def _told(self, number: int, topics: Collection[str]) -> list[PartitionView] | None:
        """Return the partitions that a broker reports; None if it does not answer."""
        with suppress(OSError):
            return self.describe(*topics, as_told_by=number)
        return None


def _all_full(topics: Collection[str], views: Collection[PartitionView]) -> bool:
    """True if all these topics exist, and every replica is in sync."""
    return {view.topic for view in views}.issuperset(topics) and all(view.is_full for view in views)


class BarnabasCluster(RunningCluster):
    """Brokers of ours, each in `folder/broker-<id>`, on one SQLite metadata store."""

    def __init__(self, folder: Path, properties: Mapping[str, str], log_dirs: int) -> None:
        super().__init__({})
        self.folder = folder
        self._properties = properties
        self._log_dirs = log_dirs
        self._http_ports: dict[int, int] = {}

    def add_broker(
        self,
        number: int,
        properties: Mapping[str, str] | None = None,
        place: Place = HERE,
        listeners: Sequence[str] = (),
    ) -> None:
        """Add a broker, not started, with these properties over those of all, and listeners beside its PLAINTEXT.

        Only processes in the same place reach its `/metrics`.
        """
        folder = self.folder_of(number)
        folder.mkdir(parents=True, exist_ok=True)
        self._http_ports[number] = free_port()
        settings = {
            "broker.id": str(number),
            "log.dirs": ",".join(map(str, self.log_dirs(number))),
            "metadata.store": f"sqlite:///{self.folder / 'metadata.sqlite'}",
            "http.listener": f"127.0.0.1:{self._http_ports[number]}",
        }
        chosen = {**settings, **self._properties, **(properties or {})}
        self.brokers[number] = prepare_barnabas(folder, chosen, place, listeners)

    def remove_broker(self, number: int) -> None:
        """Kill a broker if it runs, and delete it with its files."""
        self.brokers.pop(number).close()
        self.paused.discard(number)
        shutil.rmtree(self.folder_of(number))

    def folder_of(self, number: int) -> Path:
        """Return the folder of a broker's `server.properties`, `server.log` and log dirs."""
        return self.folder / f"broker-{number}"

    def log_dirs(self, number: int) -> list[Path]:
        """Return a broker's log dirs: `logs-0`, `logs-1`, ..."""
        return [self.folder_of(number) / f"logs-{index}" for index in range(self._log_dirs)]

    def metric(self, number: int, name: str) -> float | None:
        """Return the value of a metric without labels; None if the broker does not have it."""
        return metric(self._http_ports[number], name)

    def metrics_address(self, number: int) -> str:
        """Return HOST:PORT of `/metrics`."""
        return f"127.0.0.1:{self._http_ports[number]}"

    def page(self, number: int, path: str) -> tuple[int, str]:
        """Return status and text of `/metrics`, `/readyz` or `/healthz`."""
        return page(self._http_ports[number], path)

    def command(self, name: str, *arguments: str, exit_code: int = 0) -> str:
        """Return the output of a `barnabas` command that reads the settings of broker 0."""
        called = [sys.executable, "-m", "barnabas", name, str(self.folder_of(0) / "server.properties"), *arguments]
        environment = self.brokers[0].environment
        ended = subprocess.run(called, capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode == exit_code, ended.stdout + ended.stderr
        return ended.stdout

    def logs_text(self, numbers: Collection[int] | None = None) -> str:
        """Return the output of these brokers, for messages of failed tests."""
        return "\n".join(f"--- broker {n}\n{self.brokers[n].log_end()}" for n in numbers or self.brokers)


def prepare_cluster(
    folder: Path,
    brokers: int = 3,
    properties: Mapping[str, str] | None = None,
    log_dirs: int = 1,
    listeners: Sequence[str] = (),
) -> BarnabasCluster:
    """Return brokers 0, 1, ..., not started. All have these properties over the harness's own.

    `listeners` has one of each broker, beside its PLAINTEXT.
    """
    replicas = min(REPLICAS_OF_OFFSETS_MAX, brokers)
    topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    factors = [f"{topic}.replication.factor" for topic in topics]
    settings = {**dict.fromkeys(factors, str(replicas)), **(properties or {})}
    cluster = BarnabasCluster(folder, settings, log_dirs)
    for number in range(brokers):
        cluster.add_broker(number, listeners=listeners[number : number + 1])
    return cluster


def mend(cluster: RunningCluster) -> None:
    """Resume and start brokers until all run, and delete all topics: the next test finds a cluster as if new."""
    for number in list(cluster.paused):
        cluster.resume(number)
    if down := [number for number, broker in cluster.brokers.items() if not broker.running]:
        cluster.start(*down)
    cluster.wait_until_joined()
    admin = cluster.client().admin
    for topic in admin.list_topics(timeout=PATIENCE_S).topics:
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
    for number in cluster.brokers:
        wait_for(partial(cluster.describe, as_told_by=number), lambda views: views == [])


@contextmanager
def barnabas_cluster(
    folder: Path, brokers: int = 3, properties: Mapping[str, str] | None = None, log_dirs: int = 1
) -> Iterator[BarnabasCluster]:
    """Run such brokers; at the end every process is gone."""
    with closing(prepare_cluster(folder, brokers, properties, log_dirs)) as cluster:
        cluster.start()
        yield cluster
