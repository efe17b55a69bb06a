"""A kind that is added to the table of kinds is defined, watched, counted and reviewed without another change."""

import asyncio
from typing import Any

import pytest

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_worker import RECONCILERS
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.worker_environment import (
    FINALIZER,
    Bodies,
    KindReconciler,
    ParsedResources,
    ReconcilerEnvironment,
    Seen,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import cluster_roles
from barnabas_operator.resources.crd import definitions
from barnabas_operator.resources.kind import Json, Key
from barnabas_operator.resources.reference import reference_text
from barnabas_operator.resources.yaml_documents import parse_manifests
from barnabas_operator.watch import watch_all
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.made_up_kind import Mirror, MirrorStatus
from harness.manual_loop_clock import ManualLoopClock
from harness.webhook import webhook_said
from harness.worker_world import KEY, World, environment_of, resource, topic

TOO_WIDE = "spec.width is 10 (integer); allowed: an integer from 1 to 9"
CLUSTER = resource("Cluster", "one", pause=True)

pytestmark = pytest.mark.usefixtures("made_up")


def mirror(name: str, source: object = "flights", **spec: Any) -> dict[str, Any]:
    return resource("Mirror", name, source=source, **spec)


def kept(*bodies: Json) -> Inventory:
    inventory = Inventory()
    for body in bodies:
        inventory.keep(body, is_gone=False)
    return inventory


async def reviewed(inventory: Inventory, **request: Any) -> dict[str, Any]:
    async def never(_now: object, _before: object) -> str:
        return "only Clusters have objects"

    old, new = request.pop("oldObject", None), request.pop("object", None)
    return await webhook_said(old, new, inventory, dry_run=never, **request)


def test_the_definition_of_a_new_kind_has_its_names_columns_and_rules() -> None:
    (found,) = [each["spec"] for each in definitions() if each["metadata"]["name"] == "mirrors.barnabas.dev"]
    names, version = found["names"], found["versions"][0]
    assert (names["kind"], names["singular"], names["shortNames"]) == ("Mirror", "mirror", ["bi"])
    columns = [each["name"] for each in version["additionalPrinterColumns"]]
    assert columns == ["Ready", "Reason", "Width", "Age", "Message"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.width"
    root = version["schema"]["openAPIV3Schema"]
    assert root["required"] == ["spec"]
    (rule,) = root["properties"]["spec"]["x-kubernetes-validations"]
    assert "oldSelf.source" in rule["rule"]


def test_the_reference_describes_a_new_kind() -> None:
    assert "\n# Mirror\n" in reference_text()
    assert "`spec.width` | integer | `2` | 1 to 9 | How many at a time |" in reference_text()


def test_cluster_roles_grant_rights_to_a_new_kind() -> None:
    roles = {each["metadata"]["name"]: each["rules"] for each in cluster_roles()}
    assert {"mirrors", "mirrors/status", "mirrors/scale"} <= set(roles["barnabas-view"][0]["resources"])
    edited = [rule["resources"] for rule in roles["barnabas-mirrors-edit"]]
    assert edited == [["mirrors"], ["mirrors/status"], ["mirrors/scale"]]


def test_the_inventory_finds_clusters_namesakes_and_strays_of_a_new_kind() -> None:
    inventory = kept(CLUSTER_OF_AIR, MIRROR_OF_FLIGHTS, STRAY)
    assert inventory.cluster_of(MIRROR_OF_FLIGHTS) == KEY
    assert list(inventory.resources_of("Mirror", KEY)) == [MIRROR_OF_FLIGHTS]
    assert not list(inventory.resources_of("Topic", KEY))
    assert inventory.namesake_of(placed(mirror("b"))) == "a"
    assert inventory.colliding_with(placed(mirror("b", "Flights"))) == "a"
    assert list(inventory.strays()) == [STRAY]
    inventory.keep(MIRROR_OF_FLIGHTS, is_gone=True)
    assert [body["kind"] for body in inventory.bodies()] == ["Cluster", "Mirror"]


def placed(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"], "resourceVersion": "1"}}


CLUSTER_OF_AIR, MIRROR_OF_FLIGHTS = placed(CLUSTER), placed(mirror("a"))
STRAY = placed(mirror("s", cluster="two"))


async def test_a_resource_without_a_cluster_reports_the_reason_in_its_status() -> None:
    async with no_server() as connection:
        api, inventory, written = KubeMemory(connection), Inventory(), asyncio.Queue[Json]()

        def watched(method: str, path: str, body: Json) -> None:
            if method == "PATCH" and path.endswith("/mirrors/a/status"):
                written.put_nowait(body)

        api.put(mirror("a"))
        api.refuse = watched
        workers = ClusterWorkers(inventory, environment_of(api), OperatorMetrics(inventory))
        watching = asyncio.create_task(watch_all(api, ("air",), workers, pytest.fail, ManualLoopClock()))
        async with asyncio.timeout(PATIENCE_S):
            told = (await written.get())["status"]["conditions"][0]
        watching.cancel()
        await workers.close()
    assert (told["type"], told["status"], told["reason"]) == ("Ready", "False", "ClusterNotFound")
    assert told["message"] == "spec.cluster is missing; there is no Cluster in the namespace air yet"


async def test_the_metrics_count_resources_of_a_new_kind() -> None:
    page = (await OperatorMetrics(kept(CLUSTER_OF_AIR, MIRROR_OF_FLIGHTS)).page()).decode()
    assert 'barnabas_resources{cluster="one",kind="Mirror",resource_namespace="air"} 1.0' in page


async def test_the_webhook_refuses_invalid_fields_and_protected_deletions_of_a_new_kind() -> None:
    inventory = kept(CLUSTER_OF_AIR)
    assert (await reviewed(inventory, object=mirror("a")))["allowed"]
    wrong = await reviewed(inventory, object=mirror("a", width=12))
    assert wrong["status"]["message"] == "spec.width is 12 (integer); allowed: an integer from 1 to 9"
    protected = mirror("a", deletionPolicy="Protect")
    refused = await reviewed(inventory, oldObject=protected)
    assert refused["status"]["message"].startswith("Mirror a is not deleted, because spec.deletionPolicy is Protect")


def scaled(to: int) -> dict[str, Any]:
    asked = {"resource": {"resource": "mirrors"}, "subResource": "scale", "namespace": "air", "name": "a"}
    return {**asked, "object": {"kind": "Scale", "spec": {"replicas": to}}}


async def test_the_webhook_validates_the_field_that_a_scale_request_sets() -> None:
    inventory = kept(CLUSTER_OF_AIR, MIRROR_OF_FLIGHTS)
    assert (await reviewed(inventory, **scaled(9)))["allowed"]
    assert (await reviewed(inventory, **scaled(10)))["status"]["message"] == TOO_WIDE


async def test_the_webhook_allows_a_scale_request_before_the_watch_reports_the_resource() -> None:
    assert (await reviewed(Inventory(), **scaled(9)))["allowed"]


def test_a_manifest_file_may_not_contain_a_kind_that_is_not_meant_for_files() -> None:
    text = "apiVersion: barnabas.dev/v1alpha1\nkind: Mirror\nmetadata: {name: a}\nspec: {source: b}\n"
    (error,) = parse_manifests({"a.yaml": text}).errors
    assert error.message == "kind is 'Mirror' (string); allowed: Cluster or Topic or User or ConsumerGroup"


class MirrorReconciler(KindReconciler):
    """A reconciler that records its calls."""

    calls: tuple[tuple[str, list[str]], ...] = ()

    def __init__(self, _environment: ReconcilerEnvironment) -> None:
        type(self).calls = ()

    async def release(self, bodies: Bodies) -> None:
        type(self).calls += (("release", sorted(bodies)),)

    async def wait(self, bodies: Bodies, why: str) -> None:
        type(self).calls += ((why, sorted(bodies)),)

    async def reconcile(self, _cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        topics = sorted(seen.state.topics)
        type(self).calls += ((f"beside {topics}", sorted(bodies)),)
        raise ValueError("a mistake of ours")


@pytest.fixture
def reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECONCILERS, "Mirror", MirrorReconciler)


@pytest.mark.usefixtures("reconciled")
async def test_a_new_kind_is_reconciled_after_topics_and_its_failure_does_not_hold_them_up(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    here.api.put(mirror("a"))
    assert not await here.round()
    assert MirrorReconciler.calls[-1] == ("beside ['flights']", ["a"])
    assert here.said("Topic", "flights")[:2] == ("True", "Reconciled")
    assert here.said("Cluster", "one")[1:] == ("InternalError", "ValueError: a mistake of ours")
    here.api.put(resource("Cluster", "one", pause=True))
    await here.round()
    assert MirrorReconciler.calls[-1] == (
        "Cluster one is paused; to end the pause, set spec.pause of the Cluster to false",
        ["a"],
    )
    here.api.put({**resource("Cluster", "one", goes=True, held=True)})
    await here.round()
    assert MirrorReconciler.calls[-1] == ("release", ["a"])


def test_the_valid_fields_of_an_invalid_resource_are_read() -> None:
    wrong = mirror("a", 5, width=3, deletionPolicy="Protect", speed=1)
    good, bad = ParsedResources(Mirror).all([placed({**wrong, "status": {"width": 3}})])
    ((found, why),) = bad
    assert not good
    assert found.spec.deletion_policy == "Protect"
    assert (found.spec.width, found.status) == (3, MirrorStatus(width=3))
    assert "spec.source is 5" in why
    assert "speed" in why


def test_inventories_keep_kinds_apart() -> None:
    inventory = kept(placed(topic("a")), placed(mirror("a")))
    assert inventory.of_kind("Topic").keys() == inventory.of_kind("Mirror").keys() == {Key("air", "a")}
    assert FINALIZER not in inventory.of_kind("Mirror")[Key("air", "a")]["metadata"]["finalizers"]
