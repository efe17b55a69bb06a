"""A ConsumerGroup over consumers in pods: what it shows, scales, resets and deletes; its lag in a real Prometheus."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.pods.castle import Castle
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from harness.stock_client import StockClient
from monitoring.prometheus_server import Job, prometheus

TOPIC: Final = "bills"
GROUP: Final = "billing"
PARTITIONS: Final = 6
RECORDS: Final = 30_000
SLOW: Final = 50
FAST: Final = 10_000
SECONDS_MAX: Final = 180.0
LOOK_S: Final = 0.5
READER: Final = """
import os, signal, time
from kafka import KafkaConsumer
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
consumer = KafkaConsumer('bills', bootstrap_servers='flights-bootstrap:9092', group_id='billing',
                         auto_offset_reset='earliest', enable_auto_commit=False)
while not stopped:
    if consumer.poll(1000, max_records=int(os.environ['RATE'])):
        consumer.commit()
    time.sleep(1)
consumer.close()
"""


class Billing:
    """What the people of this group do and see."""

    def __init__(self, castle: Castle, image: str) -> None:
        self.castle = castle
        self.client = StockClient(castle.bootstrap)
        self._image = image

    def start(self) -> None:
        """The topic, with all records, and one slow consumer."""
        self.castle.create_topic(TOPIC, PARTITIONS, deletionPolicy="Delete")
        for partition in range(PARTITIONS):
            self.client.write(TOPIC, [b"a bill"] * (RECORDS // PARTITIONS), partition)
        self.castle.kubectl("apply", "-f-", stdin=json.dumps(self._deployment()))

    def apply(self, **spec: object) -> None:
        """The ConsumerGroup; all of its spec."""
        whole = {"cluster": self.castle.name, "groupId": GROUP, **spec}
        group = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": TOPIC}}
        self.castle.kubectl("apply", "-f-", stdin=json.dumps({**group, "spec": whole}))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.castle.kubectl("get", "bg", TOPIC, "-ojson")).get("status", {})
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason; nothing where there is none."""
        told = (each for each in self.status().get("conditions", ()) if each["type"] == kind)
        return next(((each["status"], each["reason"]) for each in told), ("", ""))

    def replicas(self) -> int:
        return int(self.castle.kubectl("get", "deployment", GROUP, "-ojsonpath={.spec.replicas}"))

    def events(self) -> str:
        return self.castle.kubectl("get", "events", f"--field-selector=involvedObject.name={TOPIC}", "-oyaml")

    def close(self) -> None:
        """Nothing of it is left, whatever the test came to."""
        self.castle.ask("delete", "deployment", GROUP, "--ignore-not-found", "--grace-period=1")
        self.castle.ask("patch", "bg", TOPIC, "--type=merge", '--patch={"spec":{"deletionPolicy":"Retain"}}')
        self.castle.ask("delete", "bg", TOPIC, "--ignore-not-found", "--timeout=60s")
        self.castle.ask("delete", "topic", TOPIC, "--ignore-not-found", "--timeout=60s")

    def _deployment(self) -> dict[str, Any]:
        rate = {"name": "RATE", "value": str(SLOW)}
        container = {"name": "reader", "image": self._image, "command": ["python", "-c", READER], "env": [rate]}
        pod = {"metadata": {"labels": {"app": GROUP}}, "spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": GROUP}}, "template": pod}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": GROUP}, "spec": spec}


@pytest.fixture
def billing(castle: Castle, cluster: Cluster) -> Iterator[Billing]:
    made = Billing(castle, cluster.image("barnabas-broker"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def _prometheus_sees_the_lag(castle: Castle, folder: Path) -> None:
    """What KEDA would ask it, of the lag exporter in its pod."""
    exporter = f"deployment/{castle.name}-lag-exporter"
    wait_for(lambda: castle.ask("rollout", "status", exporter).returncode == 0, seconds_max=SECONDS_MAX)
    query = f'sum(kafka_consumergroup_lag_sum{{cluster="{castle.name}",consumergroup="{GROUP}"}})'
    with castle.cluster_kubectl.forwarded(castle.namespace, exporter, 9308) as port:
        labels = {"namespace": castle.namespace, "cluster": castle.name}
        with prometheus(folder, [Job("lag-exporter", [(f"127.0.0.1:{port}", labels)])]) as asked:
            wait_for(
                lambda: [each.values for each in asked.now(query)],
                lambda found: found != [] and RECORDS / 2 < found[0][0] <= RECORDS,
                SECONDS_MAX,
                LOOK_S,
            )


def test_a_group_is_looked_at_scaled_reset_and_deleted(billing: Billing, tmp_path: Path) -> None:
    castle = billing.castle
    castle.patch({"lagExporter": {}})
    objective = {"maxRecords": 1000, "for": "5s"}
    scaling = {"target": {"name": GROUP}, "lagThreshold": 5000, "min": 1, "max": 3}
    spec: dict[str, object] = {"lagObjective": objective, "scaling": scaling, "deletionPolicy": "DeleteGroup"}
    billing.apply(**spec)

    wait_for(billing.replicas, lambda found: found == 3, SECONDS_MAX, LOOK_S)
    wait_for(lambda: billing.condition("WithinObjective")[0], lambda said: said == "False", SECONDS_MAX, LOOK_S)
    header, row = castle.kubectl("get", "bg", TOPIC).splitlines()
    assert {"GROUP", "STATE", "MEMBERS", "LAG", "OBJECTIVE"} <= set(header.split())
    assert {GROUP, str(billing.status()["lag"]), "False"} <= set(row.split())
    assert billing.status()["lag"] > RECORDS / 2
    assert "scaled Deployment billing from 1 to 3: lag " in billing.events()
    _prometheus_sees_the_lag(castle, tmp_path)
    castle.patch({"lagExporter": None})

    castle.kubectl("set", "env", f"deployment/{GROUP}", f"RATE={FAST}")
    wait_for(lambda: billing.condition("WithinObjective")[0], lambda said: said == "True", SECONDS_MAX, LOOK_S)
    one = {**spec, "scaling": {**scaling, "max": 1}}
    billing.apply(**one)
    wait_for(billing.replicas, lambda found: found == 1, SECONDS_MAX, LOOK_S)

    reset = {"id": "again", "to": {"earliest": {}}, "whenActive": "ScaleDown"}
    billing.apply(**one, offsets={"reset": reset})
    wait_for(lambda: billing.condition("OffsetsReset"), lambda said: said[0] == "True", SECONDS_MAX, LOOK_S)
    assert billing.status()["reset"]["again"] == RECORDS
    wait_for(billing.replicas, lambda found: found == 1, SECONDS_MAX, LOOK_S)
    wait_for(lambda: billing.status().get("lag"), lambda lag: lag == 0, SECONDS_MAX, LOOK_S)

    castle.kubectl("delete", "deployment", GROUP)
    castle.kubectl("delete", "bg", TOPIC, f"--timeout={SECONDS_MAX:.0f}s")
    groups = billing.client.admin.list_consumer_groups().result(SECONDS_MAX).valid
    assert GROUP not in {each.group_id for each in groups}
