"""A Cluster with TLS, users and authorization, and clients that use its Secret without changes."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.pods.administrator import administrator
from e2e.pods.castle import Castle
from e2e.pods.providers import Cluster
from e2e.pods.strangers import given_by_pods
from harness.deadline import PATIENCE_S, wait_for
from local_kubernetes.kubectl import PATIENTLY

NAME = "vault"
LISTENERS = [
    {"name": "inside", "port": 9092, "tls": True, "authentication": {"type": "tls"}},
    {"name": "outside", "port": 9094, "type": "nodeport", "tls": True, "authentication": {"type": "scram-sha-512"}},
    {"name": "old", "port": 9095, "type": "nodeport", "tls": True, "authentication": {"type": "plain"}},
]
VAULT = {
    "apiVersion": "barnabas.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": NAME},
    "spec": {
        "brokers": {"replicas": 2},
        "storage": {"volumes": [{"id": 0, "size": "1Gi", "deleteClaim": True}]},
        "listeners": LISTENERS,
        "authorization": {"type": "simple"},
        "lagExporter": {},
        "deletionPolicy": "Delete",
    },
}


SECONDS_MAX = 300.0
CLAIM = "vault-archives"
ARCHIVE = {
    "job": "archive",
    "volumes": [{"name": "archive", "mountPath": "/archive", "claimName": CLAIM}],
    "driver": {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
    "sparkConf": {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
}


def apply(castle: Castle, kind: str, name: str, spec: object, version: str = "barnabas.dev/v1alpha1") -> None:
    item = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    castle.kubectl("apply", "-f-", stdin=json.dumps(item))


@pytest.fixture(scope="module")
def vault(installed: Castle) -> Iterator[Castle]:
    installed.await_ready()
    installed.kubectl("apply", "-f-", stdin=json.dumps(VAULT))
    installed.kubectl("wait", "--for=condition=Ready", f"cluster/{NAME}", PATIENTLY)
    yield installed
    installed.kubectl("delete", "cluster", NAME, "--wait=false")


@pytest.fixture(scope="module")
def own(vault: Castle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return administrator(vault, NAME, "outside", tmp_path_factory.mktemp("vault"))


@pytest.fixture(scope="module")
def gold(own: dict[str, Any]) -> str:
    """A topic with three records; the group `guards` has read the first."""
    topic, admin = f"gold-{uuid4().hex[:8]}", AdminClient(own)
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(PATIENCE_S)
    producer = Producer(own)
    for value in (b"bar", b"coin", b"ring"):
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**own, "group.id": "guards", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    found = wait_for(lambda: consumer.poll(1), lambda record: record is not None and not record.error())
    assert found is not None
    assert found.value() == b"bar"
    consumer.commit(message=found, asynchronous=False)
    consumer.close()
    return topic


@pytest.mark.usefixtures("gold")
def test_the_administrators_secret_gives_access_and_another_password_does_not(own: dict[str, Any]) -> None:
    stranger = AdminClient({**own, "sasl.password": "another"})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=10)


def test_the_commands_for_people_connect_to_a_secured_cluster_as_its_operator_does(vault: Castle, gold: str) -> None:
    assert gold in vault.barnabas("status", about=NAME)
    assert vault.barnabas("accept-loss", "--all", about=NAME).startswith("nothing to accept")


def test_the_lag_exporter_shows_the_lag_of_a_group(vault: Castle, gold: str) -> None:
    chosen = f"app.kubernetes.io/name=barnabas-lag-exporter,barnabas.dev/cluster={NAME}"

    def pages() -> list[str]:
        return [vault.metrics(pod["metadata"]["name"], 9308) for pod in vault.items("pod", chosen)]

    lag = f'kafka_consumergroup_lag{{consumergroup="guards",partition="0",topic="{gold}"}} 2.0'
    wait_for(pages, lambda found: any(lag in page for page in found), SECONDS_MAX)


PAGES = ("/metrics", "/healthz", "/startupz", "/readyz")
TO_LOG_IN = {"versions by TLS", "mechanisms by TLS"}
"""The requests of a SASL client before it authenticates."""
OPEN_TO_ALL = {
    "outside": TO_LOG_IN,
    "old": TO_LOG_IN,
    "http": {f"{scheme} {path}" for scheme in ("http", "https") for path in PAGES},
    "webhook": {"https POST /validate"},
}
"""The answers that anybody may get, by the name of the port; the API server has no certificate for the webhook."""


def test_a_pod_without_credentials_gets_only_probes_metrics_and_webhook_reviews(
    vault: Castle, cluster: Cluster
) -> None:
    operators = vault.items("pod", "app.kubernetes.io/name=barnabas-operator")
    pods = [*vault.items("pod", f"barnabas.dev/cluster={NAME}"), *operators]
    began_s = time.monotonic()
    found = given_by_pods(vault, pods, cluster.image("barnabas-broker"))
    print(*found, f"{len(found)} ports of {len(pods)} pods in {time.monotonic() - began_s:.0f} s", sep="\n")
    roles = {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in pods}
    assert roles == {"barnabas-broker", "barnabas-lag-exporter", "barnabas-operator"}
    assert {each.name for each in found} == {"replication", "inside", *OPEN_TO_ALL}
    assert not [str(each) for each in found if each.answers - OPEN_TO_ALL.get(each.name, set())]
    reached = {each.pod for each in found if any(answer.endswith("/healthz") for answer in each.answers)}
    assert reached == {each["metadata"]["name"] for each in pods}


def kcat(folder: Path) -> subprocess.CompletedProcess[str]:
    """List topics with the unchanged file `kcat.conf`."""
    command = ["kcat", "-F", "kcat.conf", "-L", "-m", "20"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.soak(only=True)  # In `make e2e` the tutorial archives a topic of a secured Cluster.
def test_a_maintenance_job_archives_a_topic_of_a_secured_cluster(vault: Castle, cluster: Cluster, gold: str) -> None:
    cluster.image("barnabas-jobs")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    apply(vault, "PersistentVolumeClaim", CLAIM, claim, "v1")
    options = {"topic": gold, "archive": f"/archive/{gold}"}
    apply(vault, "MaintenanceJob", gold, {"cluster": NAME, "options": options, **ARCHIVE})

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(vault.kubectl("get", "bm", gold, "-ojson")).get("status", {})
        return found

    ended = wait_for(status, lambda found: found.get("phase") in ("Succeeded", "Failed"), SECONDS_MAX, 1.0)
    vault.kubectl("delete", "bm", gold, PATIENTLY)  # Its pod holds the claim.
    vault.kubectl("delete", "pvc", CLAIM, "--wait=false")
    assert (ended["phase"], ended.get("result", {}).get("archived_records")) == ("Succeeded", 3), ended


def test_metrics_require_a_token_if_declared_and_probes_do_not(vault: Castle) -> None:
    vault.kubectl("create", "secret", "generic", "scraper", "--from-literal=bearer=geheim")
    patch = {"spec": {"metrics": {"tokenSecret": {"name": "scraper", "key": "bearer"}}}}
    vault.kubectl("patch", "cluster", NAME, "--type=merge", f"--patch={json.dumps(patch)}")
    exporter = f"app.kubernetes.io/name=barnabas-lag-exporter,barnabas.dev/cluster={NAME}"

    def page(pod: str, port: int, path: str) -> str:
        place = f"/api/v1/namespaces/{vault.namespace}/pods/https:{pod}:{port}/proxy/{path}"
        done = vault.ask("get", "--raw", place)
        return done.stdout + done.stderr

    def pages(path: str) -> list[str]:
        ports = {f"{NAME}-broker-{number}": 9404 for number in range(2)}
        ports |= {pod["metadata"]["name"]: 9308 for pod in vault.items("pod", exporter)}
        return [page(pod, port, path) for pod, port in ports.items()]

    wait_for(
        lambda: pages("metrics"), lambda found: all("provide credentials" in each for each in found), SECONDS_MAX, 1.0
    )
    assert pages("healthz") == ["ok\n"] * 3
    vault.kubectl("wait", "--for=condition=Ready", f"cluster/{NAME}", PATIENTLY)
    vault.kubectl("wait", "--for=condition=Ready", "pod", f"--selector={exporter}", PATIENTLY)
    status = json.loads(vault.kubectl("get", "cluster", NAME, "-ojson"))["status"]
    assert [each.partition(":")[0] for each in status["metrics"]] == ["https"] * 2
