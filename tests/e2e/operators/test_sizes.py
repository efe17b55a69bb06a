"""What one operator costs with 60 namespaces, 400 nodes and 1,000 Users, on a real API server without pods."""

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.world import World, acts
from harness.barnabas_server import peak_resident_bytes, prepare_barnabas, resident_bytes
from harness.deadline import wait_for
from harness.server_process import ServerProcess, free_port
from local_kubernetes.apiserver import define, own_api_server
from local_kubernetes.control_plane import ControlPlane

NAMESPACES = 60
NODES = 400
USERS = 1_000
CERTIFICATE_BYTES_MAX = 8 * 1024 + 512
"""The bound of the certificate, and its form as text around."""
MEMORY_MIB_MAX = 384
"""The limit of memory in the chart."""
SETTLE_S = 20.0
POLL_S = 60.0
WAIT_S_MAX = 600.0
MIB = 2**20
LISTENERS = [
    {"name": "outside", "port": 9094, "type": "nodeport", "tls": True, "authentication": {"type": "scram-sha-512"}}
]
WRITES = {"resource": {"type": "topic", "name": "flights"}, "operations": ["Write", "Describe"]}


class Cost(NamedTuple):
    """One row of the table."""

    what: str
    memory_mib: int
    peak_mib: int
    requests_a_minute: int
    processor_s_a_minute: float


def requests_of(plane: ControlPlane) -> float:
    """Return how many requests the API server has answered so far, without those for its own pages."""
    page = plane.requests.text("/metrics")
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return sum(each.value for each in samples if each.name == "apiserver_request_total")


def processor_s(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def node(number: int) -> dict[str, object]:
    """Return the addresses of a node as EKS gives them."""
    host = f"ip-10-0-{number // 250}-{number % 250}"
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250}"},
            {"type": "ExternalIP", "address": f"54.93.{number // 250}.{number % 250}"},
            {"type": "InternalDNS", "address": f"{host}.eu-central-1.compute.internal"},
            {"type": "ExternalDNS", "address": f"ec2-54-93-{number}.eu-central-1.compute.amazonaws.com"},
        ]
    }


class House:
    """Many namespaces, with a secured Cluster in the first one and Users in the second one."""

    def __init__(self, plane: ControlPlane, broker: ServerProcess, folder: Path) -> None:
        self.plane = plane
        self.names = [f"team-{number:02d}" for number in range(NAMESPACES)]
        plane.kubectl("apply", "-f-", stdin="\n---\n".join(json.dumps(_namespace(name)) for name in self.names))
        self.secured = World(plane, self.names[0], broker, folder)
        self.users = World(plane, self.names[1], broker, folder)

    def add_nodes(self) -> None:
        names = [f"node-{number:03d}" for number in range(NODES)]
        bodies = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
        self.plane.kubectl("apply", "-f-", stdin="\n---\n".join(map(json.dumps, bodies)))
        for number, name in enumerate(names):
            self.plane.requests.merge_status("Node", None, name, node(number))

    def add_users(self) -> None:
        spec = {"authentication": {"type": "scram-sha-512"}, "authorization": {"acls": [WRITES]}}
        metas = [{"name": f"user-{number:04d}", "namespace": self.users.namespace} for number in range(USERS)]
        of_kind = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "User", "spec": spec}
        bodies = "\n---\n".join(json.dumps({**of_kind, "metadata": meta}) for meta in metas)
        self.users.kubectl("apply", "--server-side", "-f-", stdin=bodies)

    def ready_users(self) -> int:
        rows = self.users.kubectl("get", "bu", "--no-headers").splitlines()
        return sum(row.split()[1] == "True" for row in rows)

    def certificate(self) -> bytes:
        """Return the brokers' certificate of the secured Cluster; empty until it is there."""
        found = self.plane.requests.get("Secret", self.secured.namespace, "vault-broker-certificates") or {}
        pem = b64decode(found.get("data", {}).get("broker.pem", "")).decode()
        begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
        return b64decode(pem.partition(begin)[2].partition(end)[0])

    @contextmanager
    def operator(self, namespaces: int) -> Iterator[ServerProcess]:
        watched = ",".join(self.names[:namespaces])
        with closing(self.users.operator(WATCH_NAMESPACES=watched, DRIFT_SECONDS="60")) as process:
            wait_for(lambda: acts(process), seconds_max=WAIT_S_MAX)
            yield process

    def requests_a_minute(self) -> int:
        asked = requests_of(self.plane)
        time.sleep(POLL_S)
        return round(requests_of(self.plane) - asked)

    def cost(self, what: str, process: ServerProcess) -> None:
        """Print what the operator costs when nothing changes; its memory has stayed within the limit."""
        time.sleep(SETTLE_S)
        ran_s = processor_s(process.pid)
        asked = self.requests_a_minute()
        ran_s = processor_s(process.pid) - ran_s
        of_it = resident_bytes(process.pid), peak_resident_bytes(process.pid)
        cost = Cost(what, of_it[0] // MIB, of_it[1] // MIB, asked, ran_s)
        print(f"| {' | '.join(f'{each:.1f}' if isinstance(each, float) else str(each) for each in cost)} |", flush=True)
        assert cost.peak_mib < MEMORY_MIB_MAX


def _namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    safe, plain = free_port(), free_port()
    settings = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SAFE://127.0.0.1:{safe}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    process = prepare_barnabas(tmp_path, settings)
    process.port = plain
    with own_api_server(tmp_path / "plane") as plane, closing(process) as broker:
        define(plane)
        broker.launch()
        broker.await_port()
        yield House(plane, broker, tmp_path)


@pytest.mark.slow
@pytest.mark.soak(only=True)
@pytest.mark.timeout(1800)
def test_the_certificate_of_400_nodes_and_the_memory_of_the_operator_are_bounded(house: House) -> None:
    house.users.apply_cluster("one")
    house.secured.apply_cluster("vault", insecure=False, listeners=LISTENERS, authorization={})
    print(
        "| | memory MiB | highest MiB | requests a minute | processor s a minute |", "|---|---|---|---|---|", sep="\n"
    )
    without = house.requests_a_minute()
    print(f"the API server itself makes {without} requests a minute", flush=True)
    with house.operator(2) as process:
        wait_for(house.certificate, seconds_max=WAIT_S_MAX)
        house.cost("2 namespaces, no node", process)
    house.add_nodes()
    with house.operator(NAMESPACES) as process:
        house.cost(f"{NAMESPACES} namespaces, {NODES} nodes", process)
        house.add_users()
        began_s = time.monotonic()
        wait_for(house.ready_users, lambda count: count == USERS, WAIT_S_MAX, 1.0)
        print(f"{USERS} Users are ready after {time.monotonic() - began_s:.0f} s", flush=True)
        house.cost(f"the same, and {USERS} Users", process)
        size = len(house.certificate())
        print(f"the certificate of the brokers has {size} bytes", flush=True)
    assert 0 < size <= CERTIFICATE_BYTES_MAX
