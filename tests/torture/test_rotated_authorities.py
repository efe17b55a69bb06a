"""The authority that the operator keeps for a Cluster is rotated under traffic, as annotations request it."""

import datetime as dt
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import pytest

from barnabas_operator.certificates import certificates_in, has_issued
from barnabas_operator.planning.brokers.authorities import RENEW, REPLACE, STEP
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, plan_secrets
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import wait_for
from harness.mutual_tls import add_listener_of_brokers
from harness.server_process import free_port
from harness.soak import took
from torture.secured_traffic import PARTITIONS, TOPIC, Traffic
from torture.shown_certificates import shown_by

GAP_S_MAX: Final = 10.0
ROTATIONS: Final = 20
RATE: Final = 200
CLUSTER: Final = Cluster(
    metadata=ObjectMeta(name="one", namespace="air"), spec=ClusterSpec(listeners=(Listener(name="secure", tls=True),))
)
HOSTS: Final = frozenset({"localhost", "127.0.0.1"})
AUTHORITY: Final = "one-cluster-ca"


class Secrets:
    """The Secrets that the operator's plan makes, and each broker's copies, which change as in a pod.

    The operator's clock is days behind, and each plan takes an hour, so all certificates are valid now.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = dt.datetime.now(dt.UTC) - dt.timedelta(days=10)
        self._marks: Mapping[str, str] = {}
        self._found: Mapping[str, Mapping[str, bytes]] = {}
        self._copies = 0
        self.plan()

    def ask(self, annotation: str) -> None:
        self._marks = {annotation: "true"}

    def plan(self) -> bool:
        """Let an hour pass and plan; return whether the rotation continues."""
        self._now += STEP
        moment = Moment(self._found, {AUTHORITY: self._marks}, self._now, lambda: "a password")
        plan = plan_secrets(CLUSTER, HOSTS, ExternalAccess(), moment)
        assert isinstance(plan, SecretsPlan), plan
        self._found = plan.by_name
        (self._marks,) = (each.marks for each in plan.secrets if each.name == AUTHORITY)
        self.authority_file.write_bytes(self._found[f"{AUTHORITY}-cert"]["ca.crt"])
        return bool(self._marks)

    @property
    def of_brokers(self) -> Mapping[str, bytes]:
        return self._found["one-broker-certificates"]

    @property
    def authority_file(self) -> Path:
        """The file of authorities that clients trust; a client reads it when it starts."""
        return self._folder / "ca.crt"

    def folder_of(self, number: int) -> Path:
        return self._folder / f"broker-{number}"

    def mount(self, number: int) -> None:
        """Give a broker the current files of its Secret all at once, as the kubelet does."""
        folder = self.folder_of(number)
        self._copies += 1
        copy = folder / f"..{self._copies}"
        copy.mkdir(parents=True)
        for name, content in self.of_brokers.items():
            (copy / name).write_bytes(content)
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(Path("..data") / name)
        latest = folder / "..latest"
        latest.symlink_to(copy.name)
        latest.replace(folder / "..data")


class Rotated:
    """Three brokers with the certificates of Secrets, and clients that trust the authority of these."""

    def __init__(self, cluster: BarnabasCluster, secrets: Secrets, ports: list[int]) -> None:
        self.cluster, self._secrets, self._ports = cluster, secrets, ports
        self.traffic = Traffic(cluster, RATE)
        self._use()

    def rotate(self, annotation: str) -> None:
        """Take all steps of a rotation; in each step brokers get the new files one by one, and then clients do."""
        self._secrets.ask(annotation)
        former = dict(self._secrets.of_brokers)
        goes_on = True
        while goes_on:
            goes_on = self._secrets.plan()
            before, former = former, dict(self._secrets.of_brokers)
            for number in self.cluster.brokers if before != former else ():
                self._hand(number)
            self._use()
        (shown,) = certificates_in(former["broker.pem"].decode())
        (trusted,) = certificates_in(former["cluster-ca.crt"].decode())
        assert has_issued(trusted, shown)

    def _hand(self, number: int) -> None:
        """Return once a broker uses the current files of its Secret."""
        heard = self._told(number)
        self._secrets.mount(number)
        wait_for(lambda: self._told(number) > heard)
        pem = self._secrets.of_brokers["broker.pem"].decode()
        wanted = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
        wait_for(lambda: shown_by(self._secrets.authority_file, self._ports[number]) == wanted)

    def _told(self, number: int) -> int:
        return self.cluster.brokers[number].log_text().count("listener BROKERS now uses the new certificates")

    def _use(self) -> None:
        bootstrap = ",".join(f"localhost:{port}" for port in self._ports)
        self.traffic.use(bootstrap, {"security.protocol": "SSL", "ssl.ca.location": str(self._secrets.authority_file)})
        self.traffic.await_answers()


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[Rotated]:
    (tmp_path / "secrets").mkdir()
    secrets = Secrets(tmp_path / "secrets")
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.name.brokers.ssl.client.auth": "required",
        "min.insync.replicas": "2",
    }
    running = prepare_cluster(tmp_path / "cluster", properties=properties)
    ports = [free_port() for _ in running.brokers]
    for (number, broker), port in zip(running.brokers.items(), ports, strict=True):
        secrets.mount(number)
        add_listener_of_brokers(broker, f"SECURE://localhost:{port}")
        for store, file in (("keystore", "broker.pem"), ("truststore", "cluster-ca.crt")):
            broker.command += ["--override", f"ssl.{store}.location={secrets.folder_of(number) / file}"]
    with closing(running):
        running.start()
        running.create_topic(TOPIC, PARTITIONS, 3)
        yield Rotated(running, secrets, ports)


@pytest.mark.soak(only=True)
@pytest.mark.timeout(3000)
def test_certificates_and_keys_of_an_authority_are_rotated_under_traffic(rotated: Rotated) -> None:
    for annotation in islice(cycle((RENEW, REPLACE)), ROTATIONS):
        rotated.rotate(annotation)
    traffic = rotated.traffic
    assert traffic.problems() == []
    lines = rotated.cluster.logs_text().splitlines()
    assert not [line for line in lines if " ERROR " in line or "Traceback" in line]
    print(f"{len(traffic.history.acknowledged)} records acknowledged through {ROTATIONS} rotations")
    took("the longest time without an acknowledgement", traffic.longest_gap_s, GAP_S_MAX)
