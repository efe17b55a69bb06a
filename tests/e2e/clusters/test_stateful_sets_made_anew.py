"""A StatefulSet that is made anew keeps what others set on its pod template, and adopts pods: no broker restarts."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kube.api import KubeApi, KubeUnreachable
from barnabas_operator.kube.gather import gather_pods
from barnabas_operator.kube.nodes import Nodes
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.brokers.stranded_pods import COLLECTED_S
from barnabas_operator.planning.object_names import FIELD_MANAGER, KEEPER
from barnabas_operator.planning.refusal import KUBERNETES_ERROR
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.brokers.broker_reconciler import BrokerReconciler
from barnabas_operator.reconcile.brokers.pod_adoption import PodAdoption
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Rolling, Storage, Volume
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import ObjectMeta
from harness.deadline import wait_for
from harness.worker_world import environment_of
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

NAME = "castle-broker"
SECONDS_MAX = 60.0
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
RELOADED = "stakater.com/last-reloaded-from"
LATER = "2099-01-01T00:00:00+01:00"


@pytest.fixture
def namespace(controllers: ControlPlane) -> Iterator[str]:
    name = f"anew-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    yield name
    controllers.kubectl("delete", "namespace", name, "--wait=false")


class Castle:
    """A Cluster of one broker, whose pod no node runs, and which restarts only as tests want it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        meta = {"name": "castle", "namespace": namespace}
        plane.requests.apply({"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta})
        self.uid = plane.kubectl(
            "-n", namespace, "get", "clusters.barnabas.dev", "castle", "-ojsonpath={.metadata.uid}"
        )

    def of_size(self, size: str) -> Cluster:
        meta = ObjectMeta(name="castle", namespace=self.namespace, uid=self.uid)
        storage = Storage(volumes=(Volume(id=0, size=size),))
        spec = ClusterSpec(brokers=Brokers(replicas=1), storage=storage, rolling=Rolling(pause=True))
        return Cluster(metadata=meta, spec=spec)

    def kubectl(self, *arguments: str) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments)

    def stateful_set(self) -> dict[str, Any]:
        return self.plane.requests.get("StatefulSet", self.namespace, NAME) or {}

    def pod(self) -> dict[str, Any]:
        """The metadata of the broker's."""
        found = self.plane.requests.get("Pod", self.namespace, f"{NAME}-0")
        assert found is not None
        meta: dict[str, Any] = found["metadata"]
        return meta

    def annotations(self) -> dict[str, str]:
        """Of its pod template, those that others set."""
        meta = self.stateful_set()["spec"]["template"]["metadata"]
        return {name: text for name, text in meta["annotations"].items() if not name.startswith("barnabas.dev/")}

    def annotate(self, **annotations: str | None) -> None:
        change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        self.kubectl("patch", "statefulset", NAME, "--type=merge", f"-p={json.dumps(change)}")

    def renew_pod(self) -> None:
        """Returns when a pod of the template that is there is in its place."""
        self.kubectl("delete", "pod", f"{NAME}-0", "--force")
        wait_for(self._is_of_the_template, seconds_max=SECONDS_MAX)

    def _is_of_the_template(self) -> bool:
        pod, there = self.plane.requests.get("Pod", self.namespace, f"{NAME}-0"), self.stateful_set()
        status, seen = there["status"], there["metadata"]["generation"]
        revision = pod["metadata"]["labels"]["controller-revision-hash"] if pod else ""
        return bool(status.get("observedGeneration") == seen and revision == status["updateRevision"])

    def reconcile(self, size: str, *uids: str) -> PodsState:
        """By an operator that starts now, until Kubernetes has observed a StatefulSet that is none of these."""

        async def run() -> PodsState:
            async with api_client(self.plane) as opened, asyncio.timeout(SECONDS_MAX):
                return await self._reconcile(opened, self.of_size(size), uids)

        return asyncio.run(run())

    async def _reconcile(self, opened: ApiClient, cluster: Cluster, uids: tuple[str, ...]) -> PodsState:
        api = KubeApi(opened)
        brokers, nodes = BrokerReconciler(environment_of(api)), Nodes(api)
        while True:
            await brokers.advance(cluster, None)
            found = await gather_pods(api, cluster, nodes)
            there = found.broker_set
            if found.pods and there is not None and there.revision and there.uid not in uids:
                brokers.forget()  # So that all is applied once more.
                await brokers.advance(cluster, None)
                return await gather_pods(api, cluster, nodes)
            await asyncio.sleep(0.1)


def test_a_stateful_set_made_anew_keeps_what_others_set_on_its_pods(controllers: ControlPlane, namespace: str) -> None:
    castle = Castle(controllers, namespace)
    assert castle.reconcile("1Gi").remaining() == ()
    castle.kubectl("rollout", "restart", f"statefulset/{NAME}")
    castle.annotate(**{RELOADED: "a secret"})
    castle.renew_pod()
    before, set_by_others = castle.stateful_set()["metadata"]["uid"], castle.annotations()
    assert set(set_by_others) == {RESTARTED_AT, RELOADED}

    after = castle.reconcile("2Gi", before)
    assert castle.annotations() == set_by_others
    assert after.remaining() == (), "no broker restarts"

    castle.annotate(**{RESTARTED_AT: LATER, RELOADED: None})
    assert castle.reconcile("2Gi").remaining() == (0,)
    assert castle.annotations() == {RESTARTED_AT: LATER}, "others may change it as before"
    assert "barnabas.dev/kept" not in castle.stateful_set()["metadata"]["annotations"]


def test_a_restart_that_was_asked_for_counts_after_somebody_deleted_the_stateful_set(
    controllers: ControlPlane, namespace: str
) -> None:
    castle = Castle(controllers, namespace)
    castle.reconcile("1Gi")
    castle.kubectl("rollout", "restart", f"statefulset/{NAME}")
    castle.renew_pod()
    set_by_others = castle.annotations()
    castle.kubectl("delete", "statefulset", NAME, "--cascade=orphan")
    assert castle.reconcile("1Gi").remaining() == (), "an operator that never saw it learns it from the pods"
    assert castle.annotations() == set_by_others


class Interrupted(KubeApi):
    """The API server is away when the operator is to let go of what others set."""

    async def apply(self, item: Json, *, is_dry_run: bool = False, manager: str = FIELD_MANAGER) -> dict[str, Any]:
        if manager == KEEPER:
            raise KubeUnreachable("away")
        return await super().apply(item, is_dry_run=is_dry_run, manager=manager)


def test_an_operator_that_ends_while_it_makes_the_stateful_set_leaves_what_others_set(
    controllers: ControlPlane, namespace: str
) -> None:
    castle = Castle(controllers, namespace)
    made = stateful_set(castle.of_size("1Gi"), ExternalAccess(), "broker", 1)
    kept = {"annotations": {RELOADED: "a secret"}}

    async def run() -> None:
        async with api_client(controllers) as opened:
            with pytest.raises(KubeUnreachable):
                await AppliedObjects(Interrupted(opened)).apply(castle.of_size("1Gi"), made, kept)
            assert castle.annotations() == kept["annotations"]
            for _ in range(2):
                await AppliedObjects(KubeApi(opened)).apply(castle.of_size("1Gi"), made)

    asyncio.run(run())
    assert castle.annotations() == kept["annotations"]
    assert "barnabas.dev/kept" not in castle.stateful_set()["metadata"]["annotations"]


class Vanishing(KubeApi):
    """Somebody deletes the StatefulSet just before the operator lets go of what others set, once."""

    has_vanished = False

    async def apply(self, item: Json, *, is_dry_run: bool = False, manager: str = FIELD_MANAGER) -> dict[str, Any]:
        if manager == KEEPER and not self.has_vanished:
            self.has_vanished = True
            await self.delete("StatefulSet", item["metadata"]["namespace"], NAME)
        return await super().apply(item, is_dry_run=is_dry_run, manager=manager)


def test_a_stateful_set_that_somebody_deletes_while_it_is_made_is_made_again(
    controllers: ControlPlane, namespace: str
) -> None:
    castle = Castle(controllers, namespace)
    cluster = castle.of_size("1Gi")
    made, kept = stateful_set(cluster, ExternalAccess(), "broker", 1), {"annotations": {RELOADED: "a secret"}}

    async def run() -> None:
        async with api_client(controllers) as opened:
            objects = AppliedObjects(Vanishing(opened))
            with pytest.raises(ObjectRefused) as refused:
                await objects.apply(cluster, made, kept)
            assert refused.value.refusal.reason == KUBERNETES_ERROR, "it is no fault of the Cluster"
            assert await objects.apply(cluster, made, kept)

    asyncio.run(run())
    assert castle.annotations() == kept["annotations"]


class LaterClock(SystemClock):
    """The garbage collector of Kubernetes has had its time."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * COLLECTED_S * 1000


@contextmanager
def without_controllers(plane: ControlPlane) -> Iterator[None]:
    """Nobody makes pods, adopts them or collects garbage meanwhile."""
    for name in ("kube-scheduler", "kube-controller-manager"):
        plane.daemons.stop(name)
    try:
        yield
    finally:
        plane.start_controllers()


async def strand_and_let_go(castle: Castle, opened: ApiClient) -> None:
    """A StatefulSet is deleted and made anew, and its pod has no owner any more."""
    api, cluster = KubeApi(opened), castle.of_size("1Gi")
    castle.kubectl("delete", "statefulset", NAME)
    await BrokerReconciler(environment_of(api)).advance(cluster, None)
    seen = await gather_pods(api, cluster, Nodes(api))
    castle.kubectl("annotate", "pod", f"{NAME}-0", "changed=since")
    await PodAdoption(api, LaterClock()).begin(cluster, seen)
    assert castle.pod()["ownerReferences"], "it has changed since it was seen"
    await BrokerReconciler(environment_of(api, clock=LaterClock())).advance(cluster, None)
    assert "ownerReferences" not in castle.pod()


def test_a_pod_is_adopted_whose_stateful_set_was_deleted_and_that_nobody_deleted_with_it(
    controllers: ControlPlane, namespace: str
) -> None:
    castle = Castle(controllers, namespace)
    castle.reconcile("1Gi")
    before = castle.pod()

    async def run() -> None:
        async with api_client(controllers) as opened:
            await strand_and_let_go(castle, opened)

    with without_controllers(controllers):
        asyncio.run(run())
    there = castle.stateful_set()["metadata"]["uid"]
    wait_for(lambda: [each["uid"] for each in castle.pod().get("ownerReferences", ())], [there].__eq__, SECONDS_MAX)
    assert castle.reconcile("1Gi", before["ownerReferences"][0]["uid"]).remaining() == ()
    assert castle.pod()["uid"] == before["uid"], "it runs on"
    assert "broker 0 runs on" in castle.kubectl("get", "events", "--field-selector=reason=BrokerAdopted", "-oyaml")
