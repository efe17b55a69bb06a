"""A user with a namespace, a Cluster and Topics, their manifests, and clients that write and read all the time.

What the user keeps are the manifests: after an accident they are applied again.
"""

import json
import socket
import subprocess
from copy import deepcopy
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from barnabas_operator.resources.kind import JsonObject
from e2e.pods.castle import BROKERS, NAME, POLL_S, Castle
from e2e.pods.providers import Cluster
from e2e.pods.traffic import Traffic
from harness.deadline import wait_for
from harness.stock_client import StockClient

BUSY: Final = "busy"
"""The topic of the clients that never stop."""
PARTITIONS: Final = 6
RATE: Final = 100
"""The records a second: there are two Clusters on one machine."""
RECORDS: Final = 200
SECONDS_MAX: Final = 300.0
NODE_PORTS: Final = 32_001
"""The first of the node ports in manifests: Kubernetes chooses other ones by itself."""
PORTS_OF_A_TENANT: Final = 8
VIEW_SECONDS_MAX: Final = 10.0
BROKERS_MAX: Final = 4
NOTHING_MISSING: Final = "There is no topic to restore."


class Tenant:
    """The tenant `number` of an installation; `begin` makes everything that it has."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.castle = Castle(cluster, NAME, BROKERS, f"tenant-{number}")
        self.manifest = _cluster(NODE_PORTS + number * PORTS_OF_A_TENANT)
        self.topics: dict[str, JsonObject] = {}
        self.records: dict[str, list[bytes]] = {}
        self._bootstrap = ""
        self._traffic: Traffic | None = None

    @property
    def name(self) -> str:
        """Return the name of the namespace."""
        return self.castle.namespace

    @property
    def spec(self) -> JsonObject:
        """Return the spec of the Cluster's manifest; the next `apply` declares changes of it."""
        spec: JsonObject = self.manifest["spec"]
        return spec

    @property
    def traffic(self) -> Traffic:
        """Return the traffic of clients outside of Kubernetes."""
        assert self._traffic is not None, "the clients have not begun"
        return self._traffic

    def begin(self) -> None:
        """Make everything; return when the Cluster is ready, and its clients write and read."""
        self.declare(BUSY, PARTITIONS)
        self.apply()
        self.await_ready()
        self._bootstrap = self.castle.bootstrap
        self._traffic = Traffic(self._bootstrap, BUSY, PARTITIONS, RATE)
        self._traffic.__enter__()

    def close(self) -> None:
        """End the reader of this namespace."""
        self.castle.close()
        if self._traffic is not None:
            self._traffic.abandon()

    def view_of_clients(self) -> str:
        """Return who leads the busy topic, and which brokers accept a connection from here, in words."""
        try:
            seen = self.client().admin.list_topics(BUSY, timeout=VIEW_SECONDS_MAX)
        except KafkaException as error:
            return f"nobody answers at {self._bootstrap}: {error}"
        leaders = {number: found.leader for number, found in seen.topics[BUSY].partitions.items()}
        brokers = {broker.id: _reached(str(broker.host), broker.port) for broker in seen.brokers.values()}
        return f"leaders of {BUSY}: {leaders}; brokers: {brokers}"

    def apply(self) -> None:
        """Apply all manifests, as the user has them."""
        self.castle.kubectl("apply", "-f-", stdin=_listing(self.manifest, *self.topics.values()))

    def apply_cluster(self) -> None:
        """Apply the Cluster's manifest without those of its Topics."""
        self.castle.kubectl("apply", "-f-", stdin=_listing(self.manifest))

    def declare(self, name: str, partitions: int, **spec: object) -> None:
        """Add a Topic of three replicas to the manifests."""
        self.topics[name] = _topic(name, {"cluster": NAME, "partitions": partitions, "replicas": BROKERS, **spec})

    def add_topic(self, name: str, partitions: int) -> None:
        """Make a topic with records that must stay; return when they are acknowledged."""
        self.declare(name, partitions)
        self.apply()
        self.await_topics()
        self.records[name] = [f"{name}/{number}".encode() for number in range(RECORDS)]
        self.client().write(name, self.records[name])

    def scale(self, brokers: int) -> None:
        """Change the number of brokers; return when so many exist and are ready."""
        self.spec["brokers"]["replicas"] = self.castle.brokers = brokers
        self.apply()
        self.await_pods(brokers)
        self.await_ready()

    def await_pods(self, count: int) -> None:
        """Return when there are so many pods."""
        wait_for(self.castle.pods, lambda pods: len(pods) == count, SECONDS_MAX, POLL_S)

    def await_ready(self) -> None:
        """Return when Cluster and Topics are as declared."""
        self.castle.await_ready()
        self.await_topics()

    def await_topics(self) -> None:
        """Return when all declared Topics are ready."""
        names = [f"topic/{name}" for name in self.topics]
        self.castle.kubectl("wait", "--for=condition=Ready", *names, f"--timeout={SECONDS_MAX:.0f}s")

    def restore_metadata(self, *, if_missing: bool = False) -> None:
        """Restore all topics from the brokers' logs, as the guide says, once every broker has started.

        The logs of a broker that starts later would be kept, and not served. With `if_missing`, nothing may be missing.
        """
        self.await_pods(self.castle.brokers)
        pods = f"--selector=barnabas.dev/cluster={NAME}"
        self.castle.kubectl("wait", "--for=condition=Ready", "pod", pods, f"--timeout={SECONDS_MAX:.0f}s")
        pod = f"{NAME}-broker-0"
        command = ("exec", pod, "--", "barnabas", "restore-metadata", f"/etc/barnabas/{pod}.properties", "--execute")
        expected = ("Restored", NOTHING_MISSING) if if_missing else ("Restored",)
        wait_for(lambda: self.castle.ask(*command), partial(_has_printed, expected), SECONDS_MAX, POLL_S)

    def client(self) -> StockClient:
        """Return a client with the addresses that clients had at the beginning."""
        return StockClient(self._bootstrap)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions that brokers report."""
        return len(self.client().admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def brokers_of(self, *topics: str) -> set[int]:
        """Return the brokers that have replicas of these topics, as brokers report."""
        told = self.client().admin.list_topics(timeout=30).topics
        return {broker for topic in topics for part in told[topic].partitions.values() for broker in part.replicas}

    def config(self, resource: ConfigResource, key: str) -> str | None:
        """Return the value of a config that brokers report."""
        client = self.client()  # Its requests end with it.
        found = client.admin.describe_configs([resource])[resource].result(30)[key].value
        return str(found) if found is not None else None

    def problems(self) -> list[str]:
        """End the clients; return every broken promise, with this tenant's name."""
        self.traffic.__exit__(None, None, None)
        found = [*self.traffic.problems, *self._broken_topics()]
        return [f"{self.name}: {problem}" for problem in found]

    def _broken_topics(self) -> list[str]:
        found = []
        for name, topic in self.topics.items():
            declared, there = topic["spec"]["partitions"], self.partitions(name)
            found += [f"{name} has {there} partitions, {declared} were declared"] if there != declared else []
            for key, value in topic["spec"].get("config", {}).items():
                told = self.config(ConfigResource(ResourceType.TOPIC, name), key)
                found += [f"{name} has {key}={told}, {value} was declared"] if told != value else []
        for name, records in self.records.items():
            read = self.client().read(name)
            found += [f"lost: {name} has {len(read)} records, {len(records)} were written"] if read != records else []
        return found


def changed(manifest: JsonObject, **spec: object) -> JsonObject:
    """Return the manifest with these fields of its spec replaced."""
    return {**deepcopy(manifest), "spec": {**deepcopy(manifest["spec"]), **spec}}


def _topic(name: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


def _cluster(first_port: int) -> JsonObject:
    """Return the manifest of the Cluster.

    It names its node ports, so that clients outside find it again after it was deleted and made again.
    """
    brokers = [{"brokerId": number, "spec": _node_port(first_port + 1 + number)} for number in range(BROKERS_MAX)]
    template = {"bootstrapService": {"spec": _node_port(first_port)}, "brokerServices": brokers}
    spec = {
        "brokers": {"replicas": BROKERS, "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
        "storage": {"volumes": [{"id": 0, "size": "1Gi"}]},
        "insecure": True,
        "listeners": [{"name": "plain"}, {"name": "outside", "port": 9094, "type": "nodeport", "template": template}],
        "config": {"default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.num.partitions": 12},
    }
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": NAME}, "spec": spec}


def _node_port(port: int) -> JsonObject:
    return {"ports": [{"port": 9094, "nodePort": port}]}


def _listing(*items: JsonObject) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _has_printed(expected: tuple[str, ...], answer: subprocess.CompletedProcess[str]) -> bool:
    return answer.returncode == 0 and any(words in answer.stdout for words in expected)


def _reached(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), VIEW_SECONDS_MAX):
            return f"{host}:{port} takes connections"
    except OSError as error:
        return f"{host}:{port}: {error}"
