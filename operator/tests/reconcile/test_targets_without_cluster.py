"""A target that a reset has scaled down is scaled up when its Cluster is deleted or missing."""

import asyncio

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.planning.groups.scaling import BEFORE_RESET, BeforeReset, before_text
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.resources.kind import JsonObject
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory
from harness.worker_world import KEY, World, environment_of, refuses, resource

SPEC = {
    "cluster": "one",
    "scaling": {"target": {"name": "app"}},
    "offsets": {"reset": {"id": "a", "to": {"earliest": {}}, "whenActive": "ScaleDown"}},
}
WAITS = {"type": "OffsetsReset", "status": "False", "reason": "ScaledDown", "lastTransitionTime": "x"}
STATUS = {"groupId": "billing", "cluster": "one", "observedGeneration": 1, "conditions": [WAITS]}


def put_resetting(api: KubeMemory, *, goes: bool) -> JsonObject:
    """Create and return a resource whose reset has scaled the target down."""
    before = before_text(BeforeReset("billing", "a", 3))
    meta = {"name": "app", "namespace": "air", "annotations": {BEFORE_RESET: before}}
    api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 0}})
    return api.put({**resource("ConsumerGroup", "billing", goes=goes, held=True, **SPEC), "status": STATUS})


def replicas(api: KubeMemory) -> int:
    found = api.found("Deployment", "app")
    assert found is not None
    return int(found["spec"]["replicas"])


@pytest.mark.parametrize("goes", [True, False], ids=["with its Cluster", "later"])
async def test_a_target_does_not_stay_at_0_when_the_cluster_of_its_group_is_deleted(goes: bool, here: World) -> None:
    here.api.put(resource("Cluster", "one", goes=True, held=True))
    put_resetting(here.api, goes=goes)
    await here.round()
    assert replicas(here.api) == 3
    assert here.api.found("Cluster", "one") is None
    assert (here.api.found("ConsumerGroup", "billing") is None) == goes


async def test_a_target_that_may_not_be_scaled_does_not_prevent_the_deletion_of_a_cluster(here: World) -> None:
    here.api.put(resource("Cluster", "one", goes=True, held=True))
    put_resetting(here.api, goes=True)
    here.api.refuse = refuses("/deployments/", KubeRefused(403, "Forbidden", "the namespace ends"))
    await here.round()
    assert here.api.found("ConsumerGroup", "billing") is None
    assert here.api.found("Cluster", "one") is None


@pytest.mark.parametrize("goes", [True, False], ids=["deleted", "kept"])
async def test_a_target_does_not_stay_at_0_if_its_cluster_does_not_exist_any_more(
    goes: bool, connection: ApiClient
) -> None:
    api, inventory = KubeMemory(connection), Inventory()
    workers = ClusterWorkers(inventory, environment_of(api), OperatorMetrics(inventory))
    workers.resource_event(put_resetting(api, goes=goes), is_gone=False)
    workers.begin(KEY.namespace)
    async with asyncio.timeout(PATIENCE_S):
        while replicas(api) != 3 or (goes and api.found("ConsumerGroup", "billing") is not None):
            await asyncio.sleep(0.01)
    await workers.close()
