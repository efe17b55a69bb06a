"""Rounds over a Cluster's brokers, with an API server in memory."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_kube.client import ApiClient
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import CONFLICT, NOT_FOUND, TOO_MANY, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather import RESTART_ASKED, REVISION
from barnabas_operator.leader_election import ApiOutages
from barnabas_operator.planning.brokers.broker_steps import ROUTES_SETTLE_S
from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.reconcile.brokers.broker_reconciler import BrokerReconciler, BrokersOutcome, PodRestarts
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener, Rolling
from barnabas_operator.resources.kind import Json, ObjectMeta
from harness.manual_clock import ManualClock
from harness.worker_world import environment_of

STATE = ClusterState(racks=dict.fromkeys(range(2)), topics={}, controller_id=0)


def cluster(config: Mapping[str, bool | str] | None = None, *, pause: bool = False) -> Cluster:
    spec = ClusterSpec(brokers=Brokers(replicas=2), config=dict(config or {}), rolling=Rolling(pause=pause))
    return Cluster(metadata=ObjectMeta(name="flights", namespace="air", uid="u"), spec=spec)


def pod(number: int, uid: str, *, asked: bool = False) -> dict[str, Any]:
    annotations = {RESTART_ASKED: "true"} if asked else {}
    name = f"flights-broker-{number}"
    return {
        "metadata": {"name": name, "uid": uid, "labels": {REVISION: "new"}, "annotations": annotations},
        "spec": {"volumes": [{"name": "volume-0", "persistentVolumeClaim": {"claimName": f"volume-0-{name}"}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


class FewPods(KubeApi):
    """An API server with these `pods`; if `seen` is set, a list returns that instead, and may be older."""

    def __init__(self, connection: ApiClient, *pods: dict[str, Any]) -> None:
        super().__init__(connection)
        self.pods = {each["metadata"]["name"]: each for each in pods}
        self.seen: list[dict[str, Any]] | None = None
        self.events: list[Json] = []
        self.services: dict[str, dict[str, Any]] = {}
        self.is_template_seen = True
        self.monitoring: tuple[str, ...] = ()
        self.monitors: list[Json] = []
        self.evicted: list[str] = []
        self.budget: str | None = None
        """The reason why the budget allows no eviction, or None."""
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.claims: list[dict[str, Any]] = []
        self._set: dict[str, Any] | None = None

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        match method, path.split("/")[-2:]:
            case "PATCH", ("statefulsets", _):
                status = {"observedGeneration": int(self.is_template_seen), "updateRevision": "new"}
                self._set = given["body"] | {"status": status}
                self._set["metadata"] = self._set["metadata"] | {"generation": 1}
            case "GET", ("statefulsets", _) if self._set is not None:
                return self._set
            case "PATCH", ("services", name):
                self.services[name] = given["body"]
                self.services[name]["metadata"] |= {"uid": name}
            case "GET", ("air", "services"):
                return {"items": list(self.services.values())}
            case "DELETE", ("services", name):
                del self.services[name]
            case "GET", ("air", "pods"):
                return {"items": list(self.pods.values()) if self.seen is None else self.seen}
            case "GET", ("monitoring.coreos.com", "v1") if self.monitoring:
                return {"resources": [{"name": each} for each in self.monitoring]}
            case "PATCH", ("podmonitors", _):
                if "podmonitors" not in self.monitoring:
                    raise KubeRefused(NOT_FOUND, "NotFound", path)
                self.monitors.append(given["body"])
            case "GET", ("air", "persistentvolumeclaims"):
                return {"items": self.claims}
            case "GET", ("air", "events"):
                fields = dict(each.split("=") for each in given["query"]["fieldSelector"].split(","))
                return {"items": self.told.get(fields["involvedObject.kind"], [])}
            case "GET", ("air", _) | (_, "storageclasses"):
                return {"items": []}
            case "GET", _:
                raise KubeRefused(NOT_FOUND, "NotFound", path)
            case "DELETE", ("pods", name):
                self._delete(name, given["body"])
            case "POST", (name, "eviction"):
                self.evicted.append(name)
                if self.budget is not None:
                    raise KubeRefused(TOO_MANY, "TooManyRequests", self.budget)
                self._delete(name, given["body"]["deleteOptions"])
            case "POST", ("air", "events"):
                self.events.append(given["body"])
        body = given.get("body") or {}
        return {**body, "metadata": {"uid": path, "resourceVersion": "1", **body.get("metadata", {})}}

    def _delete(self, name: str, options: Json) -> None:
        if options.get("preconditions", {}).get("uid") != self.pods[name]["metadata"]["uid"]:
            raise KubeRefused(CONFLICT, "Conflict", "the UID in the precondition does not match")
        del self.pods[name]


def without_outside(wanted: Cluster) -> Cluster:
    return replace(wanted, spec=replace(wanted.spec, listeners=()))


async def first_round(api: FewPods, wanted: Cluster) -> BrokersOutcome:
    """Return the outcome of the first round of an operator."""
    return await BrokerReconciler(environment_of(api)).advance(wanted, STATE)


async def test_a_pod_with_the_restart_annotation_is_deleted_and_reported(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b", asked=True))
    outcome = await first_round(api, cluster())
    assert set(api.pods) == {"flights-broker-0"}
    assert [each["reason"] for each in api.events] == ["BrokerRestarted"]
    assert outcome.waiting is not None
    assert outcome.waiting.message == "broker 1 restarts"


async def test_a_recreated_pod_is_not_deleted_because_of_an_outdated_list(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "c"))
    api.seen = [pod(0, "a"), pod(1, "b", asked=True)]
    outcome = await first_round(api, cluster())
    assert api.pods["flights-broker-1"]["metadata"]["uid"] == "c"
    assert not api.events
    assert outcome.waiting is not None, "the next round comes soon"
    api.seen = None
    assert (await first_round(api, cluster())).waiting is None


async def test_services_of_a_removed_listener_are_deleted_after_the_brokers_have_restarted(
    connection: ApiClient,
) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b", asked=True))
    outside = Listener(name="outside", port=9094, type="nodeport", advertised_host="kafka.example")
    before = replace(cluster(), spec=replace(cluster().spec, listeners=(outside,)))
    rounds = BrokerReconciler(environment_of(api))
    await rounds.advance(before, STATE)
    everything = set(api.services)
    assert "flights-bootstrap-outside" in everything
    await rounds.advance(without_outside(before), STATE)
    assert set(api.services) == everything, "broker 1 has not restarted yet"
    api.pods["flights-broker-1"] = pod(1, "c")
    await rounds.advance(without_outside(before), STATE)
    assert set(api.services) == {"flights-broker", "flights-bootstrap"}


async def test_the_operator_waits_until_kubernetes_has_observed_the_template_of_brokers(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b"))
    rounds = BrokerReconciler(environment_of(api))
    assert (await rounds.advance(cluster(), STATE)).waiting is None
    api.is_template_seen = False
    waiting = (await rounds.advance(cluster({"num.partitions": "3"}), STATE)).waiting
    assert waiting is not None
    assert waiting.message == "waiting for Kubernetes to observe the StatefulSet"


@pytest.mark.parametrize(
    ("config", "is_balanced"),
    [({}, True), ({"auto.leader.rebalance.enable": True}, True)]
    + [({"auto.leader.rebalance.enable": said}, False) for said in (False, "false", "False")],
)
async def test_leaders_return_to_the_preferred_replicas_unless_the_config_disables_it(
    config: Mapping[str, bool | str], is_balanced: bool, connection: ApiClient
) -> None:
    outcome = await first_round(FewPods(connection, pod(0, "a"), pod(1, "b")), cluster(config))
    assert outcome.balance is is_balanced
    assert outcome.waiting is None


def crashing(number: int, *, asked: bool = False) -> dict[str, Any]:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    return pod(number, "a", asked=asked) | {"status": {"containerStatuses": [{"name": "broker", "state": state}]}}


@pytest.mark.parametrize(
    ("asked", "waiting"),
    [
        (False, Refusal("BrokersNotReady", "waiting for broker 1 to be ready")),
        (True, Refusal("RollingPaused", "spec.rolling.pause is true, so broker 1 will restart only after the pause")),
    ],
)
async def test_a_paused_roll_does_not_hide_that_brokers_crash(
    asked: bool, waiting: Refusal, connection: ApiClient
) -> None:
    api = FewPods(connection, pod(0, "a"), crashing(1, asked=asked))
    outcome = await first_round(api, cluster({"auto.leader.rebalance.enable": False}, pause=True))
    assert len(api.pods) == 2
    assert outcome.waiting == waiting
    assert outcome.trouble == "flights-broker-1: CrashLoopBackOff: back-off 5m0s"


async def test_a_running_broker_is_evicted_so_that_its_disruption_budget_applies(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b", asked=True))
    api.budget = "The disruption budget flights-broker needs 2 healthy pods and has 2 currently"
    rounds = BrokerReconciler(environment_of(api))
    waiting = (await rounds.advance(cluster(), STATE)).waiting
    assert waiting == Refusal("EvictionRefused", f"broker 1 must restart, but its eviction is refused: {api.budget}")
    assert (len(api.pods), api.events) == (2, [])
    api.budget = None
    waiting = (await rounds.advance(cluster(), STATE)).waiting
    assert waiting == Refusal("BrokersNotReady", "broker 1 restarts")
    assert api.evicted == ["flights-broker-1"] * 2
    assert set(api.pods) == {"flights-broker-0"}


async def test_running_brokers_restart_only_after_routes_have_settled_after_an_api_outage(
    connection: ApiClient,
) -> None:
    clock = ManualClock()
    outages = ApiOutages(clock.monotonic_s)
    outages.failed()
    clock.pass_time(20)
    outages.answered()
    api = FewPods(connection, pod(0, "a"), pod(1, "b", asked=True))
    rounds = BrokerReconciler(environment_of(api, outages=outages))
    waiting = (await rounds.advance(cluster(), STATE)).waiting
    assert waiting is not None
    assert waiting.message.startswith("waiting before broker 1 restarts: for 90 s after an outage")
    api.pods["flights-broker-1"] = pod(1, "b")
    outcome = await rounds.advance(cluster(), STATE)
    assert (outcome.waiting, outcome.balance) == (None, False), "leaders are balanced later"
    api.pods["flights-broker-1"] = crashing(1, asked=True)
    assert (await rounds.advance(cluster(), STATE)).waiting == Refusal("BrokersNotReady", "broker 1 restarts")
    api.pods["flights-broker-1"] = pod(1, "c", asked=True)
    clock.pass_time(ROUTES_SETTLE_S)
    assert (await rounds.advance(cluster(), STATE)).waiting == Refusal("BrokersNotReady", "broker 1 restarts")


async def test_leaders_are_balanced_after_a_restart_whose_response_was_lost(connection: ApiClient) -> None:
    class Answerless(FewPods):
        async def evict(self, namespace: str | None, pod: str, uid: str) -> None:
            await super().evict(namespace, pod, uid)
            raise KubeUnreachable("timed out")

    api = Answerless(connection, pod(0, "a"), pod(1, "b", asked=True))
    rounds = BrokerReconciler(environment_of(api))
    rounds.unbalanced = False
    with pytest.raises(KubeUnreachable):
        await rounds.advance(cluster(), STATE)
    api.pods["flights-broker-1"] = pod(1, "c")
    assert (await rounds.advance(cluster(), STATE)).balance


async def test_a_crashing_broker_restarts_even_if_its_budget_forbids_evictions(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"), crashing(1, asked=True))
    api.budget = "The disruption budget flights-broker needs 2 healthy pods and has 1 currently"
    assert (await first_round(api, cluster())).waiting == Refusal("BrokersNotReady", "broker 1 restarts")
    assert set(api.pods) == {"flights-broker-0"}


async def test_a_broker_without_its_new_volume_restarts_despite_its_budget_while_pods_are_missing(
    connection: ApiClient,
) -> None:
    """The budget counts the missing pods, and the StatefulSet creates them only after the restart."""
    old = pod(0, "a")
    old["spec"]["volumes"] = []
    api = FewPods(connection, old)
    size = {"requests": {"storage": "10Gi"}}
    meta = {"name": "volume-0-flights-broker-0", "uid": "c", "labels": {}, "resourceVersion": "1"}
    api.claims = [{"metadata": meta, "spec": {"resources": size, "volumeName": "disk"}}]
    api.budget = "The disruption budget flights-broker needs 1 healthy pods and has 1 currently"
    assert (await first_round(api, cluster())).waiting == Refusal("BrokersNotReady", "broker 0 restarts")
    assert (api.evicted, api.pods) == (["flights-broker-0"], {})


async def test_a_running_broker_that_is_not_ready_does_not_count_as_down(connection: ApiClient) -> None:
    alive = {"status": {"containerStatuses": [{"name": "broker", "state": {"running": {}}}]}}
    api = FewPods(connection, pod(0, "a", asked=True) | alive, pod(1, "b", asked=True) | alive)
    message = "waiting for broker 0 to be ready before broker 1 restarts"
    assert (await first_round(api, cluster())).waiting == Refusal("BrokersNotReady", message)
    assert len(api.pods) == 2


@pytest.mark.parametrize(("there", "count"), [((), 0), (("prometheusrules", "probes"), 0), (("podmonitors",), 1)])
async def test_a_pod_monitor_is_created_only_if_its_definition_is_installed(
    there: tuple[str, ...], count: int, connection: ApiClient
) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b"))
    api.monitoring = there
    assert (await first_round(api, cluster())).waiting is None
    assert len(api.monitors) == count


def told_of(name: str, message: str) -> dict[str, Any]:
    return {"reason": "FailedCreate", "message": message, "involvedObject": {"name": name}, "metadata": {}}


async def test_the_message_contains_why_kubernetes_cannot_create_a_pod(connection: ApiClient) -> None:
    api = FewPods(connection, pod(0, "a"))
    said = "create Pod flights-broker-1 in StatefulSet flights-broker failed error: exceeded quota: few"
    api.told["StatefulSet"] = [told_of("flights-broker", said)]
    outcome = await first_round(api, cluster())
    assert outcome.trouble == "waiting for Kubernetes to start broker 1: exceeded quota: few"


async def test_the_message_contains_why_kubernetes_cannot_create_a_disk(connection: ApiClient) -> None:
    waits = {"reason": "Unschedulable", "message": "pod has unbound immediate PersistentVolumeClaims"}
    unplaced = pod(1, "b") | {"status": {"conditions": [{"type": "PodScheduled", "status": "False"} | waits]}}
    api = FewPods(connection, pod(0, "a"), unplaced)
    missing = 'storageclass.storage.k8s.io "fsat" not found'
    api.told["PersistentVolumeClaim"] = [told_of("volume-0-flights-broker-1", missing)]
    outcome = await first_round(api, cluster())
    assert outcome.trouble == (
        "flights-broker-1 is Pending: pod has unbound immediate PersistentVolumeClaims;"
        f" volume-0-flights-broker-1: {missing}"
    )


@pytest.mark.parametrize(("uid", "left", "told"), [("a", 0, 2), ("another", 2, 0)])
async def test_only_the_first_of_several_brokers_that_restart_together_is_evicted(
    uid: str, left: int, told: int, connection: ApiClient
) -> None:
    api = FewPods(connection, pod(0, "a"), pod(1, "b"))
    together = [
        BrokerPod(number, f"flights-broker-{number}", seen, "old", is_ready=True)
        for number, seen in enumerate((uid, "b"))
    ]
    assert await PodRestarts(api, SystemClock()).begin(cluster(), together) is None
    assert api.evicted == ["flights-broker-0"]
    assert (len(api.pods), len(api.events)) == (left, told)


async def test_a_broker_that_has_lost_its_service_account_restarts_without_an_eviction(connection: ApiClient) -> None:
    """It must not wait, because brokers that restart before it would take it for dead."""
    api = FewPods(connection, pod(0, "a"))
    cut_off = BrokerPod(0, "flights-broker-0", "a", "old", is_ready=True, is_cut_off=True)
    found = PodsState(BrokerSet(1, "new", {}), {0: cut_off})
    assert [view.is_down for view in found.views()] == [True]
    assert await PodRestarts(api, SystemClock()).begin(cluster(), [cut_off]) is None
    assert (api.evicted, api.pods) == ([], {})
    (event,) = api.events
    assert "the ServiceAccount was deleted" in event["message"]
