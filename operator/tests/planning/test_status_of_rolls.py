"""What a Cluster's status says of a roll: it is none of the troubles that people are to look after."""

from msgspec.structs import replace

from barnabas_operator.planning.broker_steps import NOT_READY
from barnabas_operator.planning.cluster_status import cluster_status
from barnabas_operator.planning.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Rolling
from barnabas_operator.resources.object_meta import READY, ObjectMeta, condition_of

NOW = "2026-01-01T00:00:00Z"
CLUSTER = Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec(brokers=Brokers(replicas=2)))


def broker(number: int, is_ready: bool, revision: str = "new") -> BrokerPod:
    return BrokerPod(number, f"flights-broker-{number}", f"u-{number}", revision, is_ready)


def look(cluster: Cluster, why: str | None, *pods: BrokerPod) -> Cluster:
    """The Cluster with its next status, where these pods are there."""
    state = PodsState(BrokerSet(2, "new", {}), {each.broker_id: each for each in pods})
    refusal = Refusal(NOT_READY, why) if why is not None else None
    return replace(cluster, status=cluster_status(cluster, NOW, refusal, state, None))


def told(cluster: Cluster) -> tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]:
    """Why it is not ready, which brokers are still to restart, and which do."""
    assert cluster.status is not None
    ready, rolling = condition_of(cluster.status.conditions, READY), cluster.status.rolling
    assert ready is not None
    return (ready.reason, rolling.remaining, rolling.restarting) if rolling is not None else (ready.reason, None, None)


BEGUN = look(CLUSTER, "broker 0 restarts", broker(0, True, "old"), broker(1, True, "old"))
LAST = look(BEGUN, "waiting for broker 1", broker(0, True), broker(1, False))


def test_a_roll_lasts_from_its_first_broker_until_the_last_is_ready_again() -> None:
    assert told(BEGUN) == ("Rolling", (0, 1), ())
    assert told(look(BEGUN, "waiting for broker 0", broker(1, True, "old"))) == ("Rolling", (1,), (0,))
    assert told(LAST) == ("Rolling", (), (1,))
    assert told(look(LAST, None, broker(0, True), broker(1, True))) == ("Reconciled", None, None)


def test_a_broker_that_goes_by_itself_is_no_roll() -> None:
    whole = look(CLUSTER, None, broker(0, True), broker(1, True))
    assert told(look(whole, "waiting for broker 1", broker(0, True))) == ("BrokersNotReady", None, None)


def test_a_broker_that_goes_while_a_roll_is_paused_is_no_part_of_it() -> None:
    paused = replace(BEGUN, spec=replace(BEGUN.spec, rolling=Rolling(pause=True)))
    assert told(look(paused, "waiting for broker 1", broker(0, True, "old")))[0] == "BrokersNotReady"


def test_a_pod_that_does_not_start_is_trouble_in_a_roll_too() -> None:
    failing = broker(1, False)._replace(trouble="CrashLoopBackOff")
    assert told(look(BEGUN, "flights-broker-1: CrashLoopBackOff", broker(0, True), failing))[0] == "BrokersNotReady"
    assert told(look(LAST, "flights-broker-1: CrashLoopBackOff", broker(0, True), failing))[0] == "BrokersNotReady"
