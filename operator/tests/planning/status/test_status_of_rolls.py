"""The status of a Cluster in a roll: the Cluster is ready as long as clients are served."""

import pytest
from msgspec.structs import replace

from barnabas_operator.planning.brokers.broker_steps import NOT_READY, ROLLING_PAUSED, UNDER_REPLICATED
from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.planning.cluster_state import ClusterState, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.status.cluster_events import why_restarted
from barnabas_operator.planning.status.cluster_status import Findings, cluster_status
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Rolling
from barnabas_operator.resources.kind import READY, ROLLING, ObjectMeta, condition_of

NOW = "2026-01-01T00:00:00Z"
CLUSTER = Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec(brokers=Brokers(replicas=2)))
BEHIND = Trouble("flights", 0, (1,), (0,), offline=False)
SHORT = Trouble("flights", 0, (1,), (0,), offline=False, under_min_isr=True)
OFFLINE = Trouble("flights", 0, (0, 1), (), offline=True)
OLD = BrokerPod(1, "castle-broker-1", "u-1", "old", is_ready=True)
CHANGED = "the Cluster has changed since the broker's pod was created"
EventText = tuple[str, str, str]


def broker(number: int, is_ready: bool = True, revision: str = "new") -> BrokerPod:
    return BrokerPod(number, f"flights-broker-{number}", f"u-{number}", revision, is_ready)


def look(
    cluster: Cluster,
    why: str | Refusal | None,
    *pods: BrokerPod,
    troubles: tuple[Trouble, ...] = (),
    trouble: str = "",
    silence: str = "",
    revision: str = "new",
) -> Cluster:
    """Return the Cluster with its next status, for these pods and the state that brokers report."""
    there = PodsState(BrokerSet(2, revision, {}), {each.broker_id: each for each in pods})
    state = None if silence else ClusterState(dict.fromkeys(range(2)), {}, troubles=troubles)
    refusal = Refusal(NOT_READY, why) if isinstance(why, str) else why
    found = Findings(there, state, None, trouble, silence)
    return replace(cluster, status=cluster_status(cluster, NOW, refusal, found))


def said(cluster: Cluster, kind: str = READY) -> EventText:
    assert cluster.status is not None
    found = condition_of(cluster.status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


def rolls(cluster: Cluster) -> tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the status of Ready, the brokers still to restart and those that do; None if nothing rolls."""
    assert cluster.status is not None
    assert said(cluster, ROLLING)[0] == ("True" if cluster.status.rolling is not None else "False")
    rolling = cluster.status.rolling
    return (said(cluster)[0], rolling.remaining, rolling.restarting) if rolling else (said(cluster)[0], None, None)


WHOLE = look(CLUSTER, None, broker(0), broker(1))
BEGUN = look(WHOLE, "broker 0 restarts", broker(0, True, "old"), broker(1, True, "old"))
LAST = look(BEGUN, "waiting for broker 1", broker(0), broker(1, False))


def test_a_roll_lasts_until_its_last_broker_is_ready_and_the_cluster_stays_ready() -> None:
    assert rolls(BEGUN) == ("True", (0, 1), ())
    assert rolls(look(BEGUN, "waiting for broker 0", broker(1, True, "old"))) == ("True", (1,), (0,))
    assert rolls(LAST) == ("True", (), (1,))
    assert rolls(look(LAST, None, broker(0), broker(1))) == ("True", None, None)


def test_a_roll_begins_before_kubernetes_has_observed_the_new_template() -> None:
    assert rolls(look(WHOLE, "waiting for Kubernetes", broker(0), broker(1), revision="")) == ("True", (), ())


def test_a_stateful_set_that_is_being_replaced_is_a_roll_although_no_pod_differs_from_it_yet() -> None:
    there = PodsState(BrokerSet(2, "new", {}, is_ending=True), {0: broker(0), 1: broker(1)})
    found = Findings(there, ClusterState(dict.fromkeys(range(2)), {}))
    replaced = replace(WHOLE, status=cluster_status(WHOLE, NOW, Refusal(NOT_READY, "waiting for Kubernetes"), found))
    assert said(replaced, ROLLING)[:2] == ("True", "Restarting")


def test_a_requested_restart_is_reported_once_all_brokers_have_restarted_for_it() -> None:
    def after(revision: str, *pods: BrokerPod, asked: str = "monday") -> str | None:
        there = PodsState(BrokerSet(2, revision, {}, restart=asked), {each.broker_id: each for each in pods})
        return cluster_status(WHOLE, NOW, None, Findings(there, ClusterState(dict.fromkeys(range(2)), {}))).restarted

    old = broker(0, True, "old")
    assert after("", broker(0), broker(1)) is None
    assert after("new", old, broker(1)) is None
    assert after("new", broker(0), broker(1, False)) is None
    assert after("new", broker(0), broker(1)) == "monday"
    assert after("new", broker(0), broker(1), asked="") is None


def test_the_progress_of_a_roll_is_reported_beside_ready() -> None:
    waiting = look(BEGUN, Refusal(UNDER_REPLICATED, "waiting for a-0"), broker(0), broker(1, True, "old"))
    message = "1 of 2 brokers run with the declared settings; waiting for a-0"
    assert said(waiting, ROLLING) == ("True", "UnderReplicated", message)
    assert said(waiting) == ("True", "Reconciled", message)
    assert said(BEGUN, ROLLING)[1] == "Restarting"
    assert said(WHOLE, ROLLING) == ("False", "NoRestarts", "no broker has to restart")


def test_a_roll_leaves_the_cluster_ready_unless_partitions_are_offline_or_under_min_isr() -> None:
    pods = broker(0), broker(1, False)
    assert said(look(BEGUN, "waiting", *pods, troubles=(BEHIND,)))[0] == "True"
    few = (
        "1 partition has fewer replicas in sync than min.insync.replicas, so writes with acks=all are refused: "
        "flights-0"
    )
    assert said(look(BEGUN, "waiting", *pods, troubles=(SHORT,))) == ("False", "UnderMinIsr", few)
    offline = said(look(BEGUN, "waiting", *pods, troubles=(SHORT, OFFLINE)))
    assert offline == ("False", "PartitionsOffline", "1 partition has no leader: flights-0")


def test_offline_partitions_are_reported_with_and_without_a_pod_in_trouble() -> None:
    assert said(look(WHOLE, None, broker(0), broker(1), troubles=(OFFLINE, OFFLINE)))[1:] == (
        "PartitionsOffline",
        "2 partitions have no leader: flights-0, flights-0",
    )
    crashed = look(WHOLE, "waiting", broker(0), broker(1, False), troubles=(OFFLINE,), trouble="broker-1 was killed")
    assert said(crashed) == ("False", NOT_READY, "broker-1 was killed; 1 partition has no leader: flights-0")


def test_a_pod_that_disappears_by_itself_is_no_roll() -> None:
    gone = look(WHOLE, "waiting for broker 1", broker(0))
    assert rolls(gone) == ("False", None, None)
    assert said(gone) == ("False", NOT_READY, "waiting for broker 1")


def test_a_broker_that_is_unready_before_its_restart_makes_the_cluster_unready() -> None:
    others = look(BEGUN, "waiting for broker 1", broker(0), broker(1, False, "old"))
    assert said(others) == ("False", NOT_READY, "waiting for broker 1 to be ready")


def test_a_paused_roll_leaves_the_cluster_ready_and_is_reported() -> None:
    paused = replace(BEGUN, spec=replace(BEGUN.spec, rolling=Rolling(pause=True)))
    why = Refusal(ROLLING_PAUSED, "spec.rolling.pause is true, so broker 0 will restart only after the pause")
    waits = look(paused, why, broker(0, True, "old"), broker(1))
    assert said(waits)[0] == "True"
    assert said(waits, ROLLING)[:2] == ("True", "RollingPaused")
    gone = look(paused, why, broker(0, True, "old"))
    assert said(gone) == ("False", NOT_READY, "waiting for broker 1 to be ready")


def test_a_pod_that_does_not_start_makes_the_cluster_unready_in_a_roll_too() -> None:
    for before in (BEGUN, LAST):
        found = look(before, "waiting", broker(0), broker(1, False), trouble="flights-broker-1: ErrImagePull")
        assert said(found) == ("False", NOT_READY, "flights-broker-1: ErrImagePull")


def test_a_cluster_is_not_ready_if_no_broker_answers_although_all_pods_are_ready() -> None:
    silent = look(WHOLE, None, broker(0), broker(1), silence="no broker answers the operator at a:9091: timed out")
    assert said(silent) == ("Unknown", "BrokersUnreachable", "no broker answers the operator at a:9091: timed out")


def test_brokers_to_be_removed_make_the_cluster_unready_after_the_roll() -> None:
    """Leaders are balanced before the next broker is emptied, and the change has not ended yet."""
    fewer = replace(LAST, spec=replace(LAST.spec, brokers=Brokers(replicas=1)))
    assert rolls(look(fewer, "waiting for broker 1", broker(0), broker(1, False))) == ("True", (), (1,))
    over = look(fewer, None, broker(0), broker(1))
    assert rolls(over) == ("False", None, None)
    assert said(over) == ("False", "BrokerHoldsReplicas", "broker 1 will be removed")
    behind = Refusal(
        UNDER_REPLICATED, "waiting for the replicas of flights-0 to be in sync before leaders are balanced"
    )
    assert said(look(fewer, behind, broker(0), broker(1), troubles=(BEHIND,)))[1] == "BrokerHoldsReplicas"


def test_an_invalid_resource_is_reported_before_all_other_problems() -> None:
    wrong = Refusal("InvalidSpec", "StatefulSet flights-broker: no")
    assert said(look(BEGUN, wrong, broker(0), broker(1, False), troubles=(OFFLINE,)))[1:] == wrong


@pytest.mark.parametrize("reason", ["BrokerHoldsReplicas", "VolumeCannotGrow", "WaitingForAddresses"])
def test_problems_of_clients_are_reported_before_pending_changes(reason: str) -> None:
    why = Refusal(reason, "as told")
    assert said(look(WHOLE, why, broker(0), broker(1), troubles=(BEHIND,))) == ("False", *why)
    assert said(look(WHOLE, why, broker(0), broker(1), troubles=(OFFLINE,)))[1] == "PartitionsOffline"
    assert said(look(WHOLE, why, broker(0), broker(1), troubles=(SHORT,)))[1] == "UnderMinIsr"
    assert said(look(WHOLE, why, broker(0), broker(1, False), trouble="broker-1 was killed"))[1:] == (
        NOT_READY,
        "broker-1 was killed",
    )


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (OLD, CHANGED),
        (OLD._replace(is_ready=False), CHANGED),
        (OLD._replace(is_ready=False, is_down=True), f"the broker is not running, and {CHANGED}"),
        (OLD._replace(restart_asked=True, is_down=True), "an annotation of the pod requests a restart"),
        (
            OLD._replace(restart_asked=True, stale="tells clients 30000, which is 31000 now"),
            "it tells clients 30000, which is 31000 now",
        ),
    ],
)
def test_why_a_broker_restarts_is_told_in_words(pod: BrokerPod, why: str) -> None:
    assert why_restarted(pod) == why
