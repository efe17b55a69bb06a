"""A ConsumerGroup over consumers in pods: its status, scaling, reset and deletion.

A Prometheus in a pod reads its lag from a lag exporter, which runs as long as the Cluster declares it.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest

from e2e.pods.castle import Castle
from e2e.pods.prometheus_pod import prometheus_pod
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from harness.stock_client import StockClient
from local_kubernetes.kubectl import PATIENTLY
from monitoring.prometheus_server import Prometheus, Series

TOPIC: Final = "bills"
GROUP: Final = "billing"
PARTITIONS: Final = 6
RECORDS: Final = 30_000
SLOW: Final = 5
"""Records a second: most of the records are left after all checks, however long these take."""
FAST: Final = 10_000
SECONDS_MAX: Final = 400.0
POLL_S: Final = 0.5
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
    """The group's users: what they do and see."""

    def __init__(self, castle: Castle, image: str) -> None:
        """`image` has kafka-python."""
        self.castle = castle
        self.client = StockClient(castle.bootstrap)
        self._image = image

    def start(self) -> None:
        """Make the topic with all records and one slow consumer."""
        self.castle.create_topic(TOPIC, PARTITIONS, deletionPolicy="Delete")
        for partition in range(PARTITIONS):
            self.client.write(TOPIC, [b"a bill"] * (RECORDS // PARTITIONS), partition)
        self.castle.kubectl("apply", "-f-", stdin=json.dumps(self._deployment()))

    def apply(self, **spec: object) -> None:
        """Apply the ConsumerGroup with this spec."""
        whole = {"cluster": self.castle.name, "groupId": GROUP, **spec}
        group = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": TOPIC}}
        self.castle.kubectl("apply", "-f-", stdin=json.dumps({**group, "spec": whole}))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.castle.kubectl("get", "bg", TOPIC, "-ojson")).get("status", {})
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition, or empty texts if there is none."""
        told = (each for each in self.status().get("conditions", ()) if each["type"] == kind)
        return next(((each["status"], each["reason"]) for each in told), ("", ""))

    def replicas(self) -> int:
        return int(self.castle.kubectl("get", "deployment", GROUP, "-ojsonpath={.spec.replicas}"))

    def events(self) -> str:
        return self.castle.kubectl("get", "events", f"--field-selector=involvedObject.name={TOPIC}", "-oyaml")

    def close(self) -> None:
        """Delete everything that is left of the test."""
        self.castle.ask("delete", "deployment", GROUP, "--ignore-not-found", "--grace-period=1")
        self.castle.ask("patch", "bg", TOPIC, "--type=merge", '--patch={"spec":{"deletionPolicy":"Retain"}}')
        self.castle.ask("delete", "bg", TOPIC, "--ignore-not-found", PATIENTLY)
        self.castle.ask("delete", "topic", TOPIC, "--ignore-not-found", PATIENTLY)

    def _deployment(self) -> dict[str, Any]:
        rate = {"name": "RATE", "value": str(SLOW)}
        container = {"name": "reader", "image": self._image, "command": ["python", "-c", READER], "env": [rate]}
        pod = {"metadata": {"labels": {"app": GROUP}}, "spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": GROUP}}, "template": pod}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": GROUP}, "spec": spec}


@pytest.fixture
def billing(castle: Castle, cluster: Cluster) -> Iterator[Billing]:
    with closing(Billing(castle, cluster.image("barnabas-operator"))) as made:
        made.start()
        yield made


@contextmanager
def lag_exporter(castle: Castle) -> Iterator[None]:
    """Declare a lag exporter in the Cluster, inside of the context."""
    brokers, left = castle.pods(), f"{castle.name}-lag-exporter"
    castle.patch({"lagExporter": {}})
    try:
        yield
    finally:
        castle.patch({"lagExporter": None})
    wait_for(lambda: left not in castle.kubectl("get", "deployments,pods", "-oname"), seconds_max=SECONDS_MAX)
    assert castle.pods() == brokers, "the exporter must not restart a broker"


def _by(label: str, series: list[Series]) -> dict[str, float]:
    return {each.labels.get(label, ""): each.values[0] for each in series}


def _all_are_read(asked: Prometheus, castle: Castle) -> None:
    jobs = {"brokers": castle.brokers, "lag-exporter": 1, "operator": 1}
    wait_for(lambda: _by("job", asked.now("sum by (job) (up)")), lambda found: found == jobs, SECONDS_MAX, POLL_S)


def _prometheus_sees_all(asked: Prometheus, castle: Castle) -> None:
    """Check that Prometheus reads brokers, lag exporter and operator with the labels of dashboards and alerts."""
    where = f'namespace="{castle.namespace}",cluster="{castle.name}"'
    _all_are_read(asked, castle)
    led = asked.now(f"kafka_server_replicamanager_leadercount{{{where}}}")
    assert sorted(_by("broker", led)) == [str(number) for number in range(castle.brokers)]
    acting = asked.now(f'sum(barnabas_operator_is_leader{{namespace="{castle.namespace}"}})')
    assert [each.values for each in acting] == [[1]]
    summed = f'consumergroup:kafka_consumergroup_lag:sum{{{where},consumergroup="{GROUP}"}}'
    wait_for(lambda: asked.now(summed), seconds_max=SECONDS_MAX)


def _lag_by_instance(asked: Prometheus) -> dict[str, float]:
    """Return the lag from each lag exporter, as KEDA would ask for it."""
    series = f'kafka_consumergroup_lag{{job="lag-exporter",topic="{TOPIC}",consumergroup="{GROUP}"}}'
    return _by("instance", asked.now(f"sum by (instance) ({series})"))


def _series_come_back(asked: Prometheus, castle: Castle) -> None:
    """Check that a new pod's series replace those of the killed pod, under the new pod's name."""
    (before,) = wait_for(lambda: _lag_by_instance(asked), seconds_max=SECONDS_MAX)
    chosen = f"--selector=app.kubernetes.io/name=barnabas-lag-exporter,barnabas.dev/cluster={castle.name}"
    castle.kubectl("delete", "pod", chosen, "--grace-period=0", "--force")
    (lag,) = wait_for(
        lambda: _lag_by_instance(asked), lambda now: len(now) == 1 and before not in now, SECONDS_MAX, POLL_S
    ).values()
    assert 0 < lag <= RECORDS
    assert len(asked.now(f'kafka_topic_partition_leader{{job="lag-exporter",topic="{TOPIC}"}}')) == PARTITIONS


def _series_go(asked: Prometheus, castle: Castle) -> None:
    """Check that the group's series disappear from all targets, while the targets are still read."""
    series = f'{{__name__=~"kafka_consumergroup.*",consumergroup="{GROUP}"}}'
    wait_for(lambda: asked.now(series), lambda left: left == [], SECONDS_MAX, POLL_S)
    assert len(asked.now(f'kafka_topic_partitions{{topic="{TOPIC}"}}')) >= 1
    _all_are_read(asked, castle)


def test_a_consumer_group_is_monitored_scaled_and_deleted(billing: Billing, cluster: Cluster) -> None:
    with lag_exporter(billing.castle), prometheus_pod(cluster, billing.castle) as asked:
        _life_of_a_group(billing, asked)


@pytest.mark.soak(only=True)
def test_a_reset_scales_the_consumers_down_and_up_again(billing: Billing) -> None:
    reset = {"id": "again", "to": {"earliest": {}}, "whenActive": "ScaleDown"}
    scaling = {"target": {"name": GROUP}, "lagThreshold": 5000, "min": 1, "max": 1}
    spec: dict[str, object] = {"scaling": scaling, "deletionPolicy": "Retain"}
    billing.castle.kubectl("set", "env", f"deployment/{GROUP}", f"RATE={FAST}")
    billing.apply(**spec)
    wait_for(lambda: billing.status().get("lag"), lambda lag: lag == 0, SECONDS_MAX, POLL_S)
    billing.apply(**spec, offsets={"reset": reset})
    wait_for(lambda: billing.condition("OffsetsReset"), lambda said: said[0] == "True", SECONDS_MAX, POLL_S)
    assert billing.status()["reset"]["again"] == RECORDS
    wait_for(billing.replicas, lambda found: found == 1, SECONDS_MAX, POLL_S)
    wait_for(lambda: billing.status().get("lag"), lambda lag: lag == 0, SECONDS_MAX, POLL_S)


@pytest.mark.soak(only=True)
def test_the_series_of_a_killed_lag_exporter_return_under_the_new_pods_name(billing: Billing, cluster: Cluster) -> None:
    with lag_exporter(billing.castle), prometheus_pod(cluster, billing.castle) as asked:
        _series_come_back(asked, billing.castle)


def _life_of_a_group(billing: Billing, asked: Prometheus) -> None:
    castle = billing.castle
    objective = {"maxRecords": 1000, "for": "5s"}
    scaling = {"target": {"name": GROUP}, "lagThreshold": 5000, "min": 1, "max": 3}
    spec: dict[str, object] = {"lagObjective": objective, "scaling": scaling, "deletionPolicy": "DeleteGroup"}
    billing.apply(**spec)

    wait_for(billing.replicas, lambda found: found == 3, SECONDS_MAX, POLL_S)
    wait_for(lambda: billing.condition("WithinObjective")[0], lambda said: said == "False", SECONDS_MAX, POLL_S)
    header, row = castle.kubectl("get", "bg", TOPIC).splitlines()
    assert {"GROUP", "STATE", "MEMBERS", "LAG", "OBJECTIVE"} <= set(header.split())
    assert {GROUP, "False"} <= set(row.split())
    # A later look would find less lag.
    assert RECORDS >= int(row.split()[header.split().index("LAG")]) > RECORDS / 2
    wait_for(
        lambda: "scaled Deployment billing from 1 to 3 replicas: the lag is " in billing.events(),
        seconds_max=SECONDS_MAX,
    )
    _prometheus_sees_all(asked, castle)

    castle.kubectl("set", "env", f"deployment/{GROUP}", f"RATE={FAST}")
    wait_for(lambda: billing.condition("WithinObjective")[0], lambda said: said == "True", SECONDS_MAX, POLL_S)
    billing.apply(**{**spec, "scaling": {**scaling, "max": 1}})
    wait_for(billing.replicas, lambda found: found == 1, SECONDS_MAX, POLL_S)

    # Foreground deletion waits for the pods: a consumer that still starts would create its group again.
    castle.kubectl("delete", "deployment", GROUP, "--cascade=foreground")
    castle.kubectl("delete", "bg", TOPIC, PATIENTLY)
    groups = billing.client.admin.list_consumer_groups().result(SECONDS_MAX).valid
    assert GROUP not in {each.group_id for each in groups}
    _series_go(asked, castle)
