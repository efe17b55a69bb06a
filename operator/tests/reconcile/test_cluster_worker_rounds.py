"""Rounds of a worker over an API server and brokers in memory: a refusal is reported, and stops nothing else."""

from dataclasses import replace

import pytest

from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.leader_election import NotLeading
from barnabas_operator.planning.cluster_state import StrayLog, Trouble
from barnabas_operator.reconcile.reconcile_parts import PATIENCE_S, ReconcileParts, ShortOutages
from barnabas_operator.reconcile.worker_environment import FINALIZER
from barnabas_operator.resources.kind import JsonObject
from harness.worker_world import SETTINGS, World, claim_of, of_broker, refuses, resource, topic

UNREADABLE = {"config": {"retention.ms": [1]}}


async def test_a_refused_stateful_set_is_reported_and_topics_are_created_anyway(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    here.api.refuse = refuses(
        "/statefulsets", KubeRefused(422, "Invalid", "must be less than or equal to memory limit")
    )
    assert await here.round()
    message = "StatefulSet one-broker: must be less than or equal to memory limit"
    assert here.said("Cluster", "one") == ("False", "InvalidSpec", message)
    assert here.said("Topic", "flights")[0] == "True"
    assert not here.api.of_kind("ConfigMap"), "running brokers stay as they are"
    asked = len([each for each in here.api.writes if "statefulsets" in each])
    await here.round()
    assert len([each for each in here.api.writes if "statefulsets" in each]) == asked, "it is not requested again"
    assert here.said("Cluster", "one") == ("False", "InvalidSpec", message)


async def test_a_refused_supporting_object_stops_no_other_object(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.refuse = refuses("/networkpolicies/", KubeRefused(403, "Forbidden", "not yours"))
    assert not await here.round(), "it may be accepted later"
    assert here.said("Cluster", "one") == ("False", "KubernetesError", "NetworkPolicy one-broker: not yours")
    assert here.api.found("StatefulSet", "one-broker") is not None


@pytest.mark.parametrize("part", ["/networkpolicies/", "/statefulsets/", "/clusters/one", "/topics/flights"])
async def test_a_forbidden_write_is_retried_soon(part: str, here: World) -> None:
    """An API server that has just started does not know any rights yet."""
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights", deletionPolicy="Delete"))
    here.api.refuse = refuses(part, KubeRefused(403, "Forbidden", "not yours"))
    assert not await here.round()
    here.api.refuse = refuses("/nothing", ValueError())
    assert await here.round()
    assert here.api.found("NetworkPolicy", "one-broker") is not None
    assert here.api.found("StatefulSet", "one-broker") is not None
    assert here.said("Cluster", "one")[1] != "KubernetesError"
    assert here.said("Topic", "flights")[0] == "True"


async def test_dynamic_configs_that_a_broker_refuses_are_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture, here: World
) -> None:
    here.brokers.refused_configs = StepRefused(40, "the certificate has expired")
    here.api.put(resource("Cluster", "one", config={"log.retention.ms": 1000}))
    await here.round()
    refusal = "one: broker 0 refused the dynamic configs: INVALID_CONFIG (40): the certificate has expired"
    assert refusal in caplog.text


async def test_losses_that_brokers_report_are_in_the_status_until_they_end(here: World) -> None:
    stray = StrayLog(broker_id=0, directory="/data/0/t-0-stray", size_bytes=4096)
    here.brokers.troubles = (Trouble("flights", 0, (0,), (), offline=True, lost="broker 0 has no log"),)
    here.brokers.strays = (stray,)
    here.api.put(resource("Cluster", "one"))
    await here.round()
    assert "flights-0 (broker 0 has no log)" in here.said("Cluster", "one", "RecordsLost")[2]
    assert "broker 0 /data/0/t-0-stray" in here.said("Cluster", "one", "LogsSetAside")[2]
    here.brokers.troubles, here.brokers.strays, here.brokers.count = (), (), 2
    await here.round()
    assert here.conditions("Cluster", "one") == ["Ready", "Rolling"]


async def test_a_round_asks_the_brokers_for_their_state_once_and_once_more_after_steps(here: World) -> None:
    async def looks() -> int:
        before = here.brokers.looks
        assert await here.round()
        return here.brokers.looks - before

    here.api.put(resource("Cluster", "one"))
    assert await looks() == 1, "there are no Topics"
    here.api.put(topic("flights", config={"retention.ms": 1000}))
    assert await looks() == 2, "it creates one"
    assert await looks() == 1, "all is as declared"
    assert here.brokers.topics["flights"].overrides == {"retention.ms": "1000"}
    here.brokers.topics["flights"] = replace(here.brokers.topics["flights"], overrides={})
    assert await looks() == 2, "it sees and mends what differs in the configs"
    assert here.brokers.topics["flights"].overrides == {"retention.ms": "1000"}
    assert here.said("Topic", "flights")[0] == "True"


async def test_an_internal_error_is_reported_and_the_round_is_retried(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    here.brokers.bug = ValueError("no such thing")
    assert not await here.round()
    assert here.said("Cluster", "one") == ("False", "InternalError", "ValueError: no such thing")
    here.brokers.bug = None
    assert await here.round()
    assert here.said("Topic", "flights")[0] == "True"


async def test_a_refused_finalizer_is_reported_and_holds_up_no_other_topic(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("bad", deletionPolicy="Delete"))
    here.api.put(topic("good"))
    refused = KubeRefused(422, "Invalid", "too many annotations")
    here.api.refuse = lambda _, path, body: refused if "/bad" in path and "metadata" in body else None
    await here.round()
    why = f"the finalizer {FINALIZER} could not be changed: too many annotations"
    assert here.said("Topic", "bad") == ("False", "KubernetesError", why)
    assert here.brokers.topics.keys() == {"good"}


PAUSED = "Cluster one is paused; to end the pause, set spec.pause of the Cluster to false"
AWAY = "Cluster one does not answer yet"


@pytest.mark.parametrize(
    ("spec", "brokers", "why"),
    [
        ({"pause": True}, 1, PAUSED),
        (
            {"config": {"num.partitions": "many"}},
            1,
            "Cluster one has a problem that must be fixed first: spec.config num.partitions=many",
        ),
        (
            {"brokers": {"replicas": "many"}},
            1,
            "Cluster one has a problem that must be fixed first: spec.brokers.replicas",
        ),
        ({}, 0, AWAY),
    ],
)
async def test_deleted_topics_that_need_no_brokers_are_removed_and_others_report_why_not(
    spec: JsonObject, brokers: int, why: str, here: World
) -> None:
    here.brokers.count = brokers
    here.api.put(resource("Cluster", "one", **spec))
    for name, policy in (("kept", "Retain"), ("gone", "Delete"), ("guarded", "Protect")):
        here.api.put(topic(name, goes=True, deletionPolicy=policy))
    here.api.put(topic("paused", goes=True, deletionPolicy="Delete", pause=True))
    here.api.put(topic("new"))
    await here.round()
    assert here.api.found("Topic", "kept") is None
    assert here.api.found("Topic", "paused") is None
    status, reason, message = here.said("Topic", "new")
    assert (status, reason) == ("False", "ClusterNotReady")
    assert message.startswith(why)
    status, reason, message = here.said("Topic", "gone")
    assert (status, reason) == ("False", "ClusterNotReady")
    assert message.startswith(why)
    assert "if spec.deletionPolicy is changed to Retain, this resource is deleted at once" in message
    assert here.said("Topic", "guarded")[1] == "DeletionProtected"


async def test_a_topic_that_is_as_declared_stays_ready_while_its_cluster_is_paused(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    await here.round()
    here.api.put(resource("Cluster", "one", pause=True))
    await here.round()
    assert here.said("Topic", "flights")[0] == "True"
    assert here.said("Cluster", "one") == (
        "Unknown",
        "Paused",
        "spec.pause is true, so the operator changes nothing",
    )
    assert here.said("Cluster", "one", "ReconciliationPaused")[0] == "True"


@pytest.mark.parametrize(("policy", "left"), [("Delete", set()), ("Retain", {"flights"}), ("Unheard", {"flights"})])
async def test_a_deleted_topic_with_an_invalid_spec_follows_its_deletion_policy(
    policy: str, left: set[str], here: World
) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    await here.round()
    there = here.api.found("Topic", "flights") or {}
    here.api.put({**topic("flights", goes=True, deletionPolicy=policy, **UNREADABLE), "status": there["status"]})
    await here.round()
    assert here.api.found("Topic", "flights") is None
    assert here.brokers.topics.keys() == left


@pytest.mark.parametrize(("policy", "claims"), [("Delete", 0), ("Retain", 1)])
async def test_a_deleted_cluster_of_a_newer_version_is_removed_with_its_topics(
    policy: str, claims: int, here: World
) -> None:
    here.api.put(claim_of(0, 0))
    here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy=policy, unheard={"of": 1}))
    here.api.put(topic("flights", goes=True, deletionPolicy="Delete"))
    await here.round()
    assert here.api.found("Cluster", "one") is None
    assert here.api.found("Topic", "flights") is None
    assert len([path for path in here.api.objects if "persistentvolumeclaims" in path]) == claims


async def test_a_protected_cluster_that_is_deleted_keeps_its_objects_and_topics(here: World) -> None:
    here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy="Protect"))
    here.api.put({**topic("held", deletionPolicy="Protect")})
    here.api.put(topic("new"))
    for _ in range(2):
        assert await here.round()
    why = "spec.deletionPolicy is Protect; set Delete or Retain to let the Cluster be deleted"
    assert here.said("Cluster", "one") == ("False", "DeletionProtected", why)
    held = here.api.found("Topic", "held") or {}
    assert held["metadata"]["finalizers"] == [FINALIZER]
    assert here.brokers.topics.keys() == {"held", "new"}
    assert here.api.found("StatefulSet", "one-broker") is not None


async def test_the_status_of_a_cluster_has_its_id_and_the_addresses_of_its_metrics(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    await here.round()
    status = (here.api.found("Cluster", "one") or {})["status"]
    assert status["clusterId"] == "a-cluster"
    assert status["metrics"] == ["http://one-broker-0.one-broker.air.svc:9404/metrics"]


@pytest.mark.parametrize("here", [replace(SETTINGS, busy_s=0.01)], indirect=True)
async def test_a_round_that_balanced_leaders_is_followed_by_the_next_step_without_an_event(
    monkeypatch: pytest.MonkeyPatch, here: World
) -> None:
    here.api.put(resource("Cluster", "one", brokers={"replicas": 2}))
    await here.round()
    here.kubernetes_saw("new")
    for number in range(2):
        here.api.put(of_broker(number))
    here.api.put(resource("Cluster", "one", brokers={"replicas": 1}))
    assert await here.round(), "an operator that has just started does not know if leaders are balanced"
    while (here.api.found("StatefulSet", "one-broker") or {})["spec"]["replicas"] > 1:
        assert await here.next(), "no event wakes the worker"


async def test_an_operator_that_may_not_write_for_a_moment_does_not_change_the_status(here: World) -> None:
    """A lease that could not be renewed in time is no fault of a Cluster; the round is tried again."""
    here.api.put(resource("Cluster", "one"))
    here.api.put(topic("flights"))
    await here.round()
    before = here.said("Cluster", "one")
    here.api.put(topic("planes"))
    here.brokers.bug = NotLeading("the lease ends in 4.2 s, but the request may take 10.0 s")
    assert not await here.round(), "it is tried again"
    assert here.said("Cluster", "one") == before
    here.brokers.bug = None
    assert await here.round()
    assert here.said("Topic", "planes")[0] == "True"


async def test_one_broken_connection_to_the_api_server_does_not_change_the_status(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    await here.round()
    before = here.said("Cluster", "one")
    here.api.refuse = lambda _, path, __: KubeUnreachable("reset by peer") if "/pods" in path else None
    assert not await here.round()
    assert here.said("Cluster", "one") == before
    here.api.refuse = refuses("/nothing", ValueError())
    assert await here.round()


async def test_only_a_long_outage_of_the_api_server_is_reported() -> None:
    clock = 0.0
    blips = ShortOutages(lambda: clock)

    async def told_at(moment: float, error: Exception | None) -> bool:
        nonlocal clock
        clock = moment

        async def part() -> None:
            if error is not None:
                raise error

        parts = ReconcileParts("air/one")
        await parts.run(part())
        return blips.is_one(parts)

    assert await told_at(0.0, KubeUnreachable("reset"))
    assert await told_at(PATIENCE_S, KubeUnreachable("reset"))
    assert not await told_at(PATIENCE_S + 1, KubeUnreachable("reset")), "that is too long"
    assert not await told_at(PATIENCE_S + 2, None)
    assert await told_at(PATIENCE_S + 3, KubeUnreachable("reset")), "it has answered since"
    assert not await told_at(PATIENCE_S + 4, KubeRefused(403, "Forbidden", "no")), "that is an answer"
