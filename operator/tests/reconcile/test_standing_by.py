"""An operator without the lease writes nothing, but serves its webhook; with the lease it writes."""

import asyncio
import math
import threading
import time
from collections.abc import Callable

from barnabas_kube.client import ApiClient
from barnabas_operator.admission import DryRun
from barnabas_operator.kube.api import path_of
from barnabas_operator.leader_election import Leadership
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from harness.brokers_memory import BrokersMemory
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory
from harness.webhook import webhook_said
from harness.worker_world import KEY, environment_of, resource, topic


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_an_operator_without_the_lease_serves_the_webhook_and_writes_nothing(connection: ApiClient) -> None:
    brokers = BrokersMemory()
    api, inventory, leadership = KubeMemory(connection), Inventory(), Leadership(time.monotonic)
    environment = environment_of(api, brokers, leadership=leadership)
    workers = ClusterWorkers(inventory, environment, OperatorMetrics(inventory))
    for each in (resource("Cluster", "one"), topic("flights"), resource("Topic", "stray", cluster="two")):
        workers.resource_event(api.put(each), is_gone=False)
    workers.begin(KEY.namespace)
    await until(lambda: workers.state_of(KEY) is not None)
    dry_run = DryRun(api, "image", environment.clock)
    said = await webhook_said(None, topic("wide", replicas=9), inventory, state_of=workers.state_of, dry_run=dry_run)
    assert "spec.replicas is 9" in said["status"]["message"]
    assert (api.writes, brokers.topics) == ([], {})

    leadership.renewed(math.inf)
    workers.restart_all()
    await until(lambda: "flights" in brokers.topics and any("topics/stray" in each for each in api.writes))

    leadership.stop()
    workers.restart_all()
    await until(lambda: workers.state_of(KEY) is not None)
    before = list(api.writes)
    workers.resource_event(api.put(topic("late")), is_gone=False)
    brokers.count = 2
    await until(lambda: (state := workers.state_of(KEY)) is not None and len(state.racks) == 2)
    assert (api.writes, "late" in brokers.topics) == (before, False)
    await workers.close()


async def test_a_late_event_of_a_deleted_cluster_deletes_nothing_of_its_successor(
    connection: ApiClient,
) -> None:
    api, inventory = KubeMemory(connection), Inventory()
    metrics = OperatorMetrics(inventory)
    workers = ClusterWorkers(inventory, environment_of(api), metrics)
    api.objects["/api/v1/namespaces/air"] = {"kind": "Namespace", "metadata": {"name": "air"}}
    late = resource("Cluster", "one", goes=True, held=True, deletionPolicy="Delete")
    workers.resource_event(api.put(late), is_gone=False)
    api.objects.pop(path_of("Cluster", KEY.namespace, KEY.name))
    again = resource("Cluster", "one", deletionPolicy="Delete")
    api.put({**again, "metadata": {**again["metadata"], "uid": "another"}})
    workers.begin(KEY.namespace)
    await until(lambda: rounds(metrics) > 0)
    await workers.close()
    assert not [each for each in api.writes if each.startswith("DELETE")]


class SlowBrokers(BrokersMemory):
    """Brokers to which a connection takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_answer, self.is_closed = (threading.Event() for _ in range(3))

    def __call__(self, *_: object) -> "SlowBrokers":
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        return self

    def close(self) -> None:
        self.is_closed.set()


async def test_a_connection_that_opens_after_the_end_of_its_worker_is_closed(connection: ApiClient) -> None:
    brokers = SlowBrokers()
    api, inventory = KubeMemory(connection), Inventory()
    workers = ClusterWorkers(inventory, environment_of(api, brokers), OperatorMetrics(inventory))
    workers.resource_event(api.put(resource("Cluster", "one")), is_gone=False)
    workers.begin(KEY.namespace)
    await until(brokers.is_asked.is_set)
    await workers.close()
    brokers.may_answer.set()
    await until(brokers.is_closed.is_set)


def rounds(metrics: OperatorMetrics) -> float:
    labels = {"resource_namespace": KEY.namespace, "cluster": KEY.name}
    return metrics.registry.get_sample_value("barnabas_reconciliations_total", labels) or 0.0
