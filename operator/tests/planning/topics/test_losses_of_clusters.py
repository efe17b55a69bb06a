"""A Cluster reports lost records and stray logs, and is not ready while partitions are offline."""

import msgspec
from msgspec.structs import replace

from barnabas_operator.planning.brokers.broker_steps import NOT_READY
from barnabas_operator.planning.cluster_state import ClusterState, StrayLog, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.rules_of_kinds import status_events
from barnabas_operator.planning.status.cluster_status import Findings, cluster_status
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta, condition_of

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
CLUSTER = Cluster(metadata=ObjectMeta(name="air"), spec=ClusterSpec())
LOST = Trouble("flights", 0, (0,), (), offline=True, lost="the last known log end is 9308, broker 0 has no log")
AWAY = Trouble("flights", 1, (0,), (), offline=True)
LOST_TEXT = (
    "partitions are offline because every replica lacks committed records: flights-0 (the last known log end is 9308, "
    "broker 0 has no log); "
    "`barnabas accept-loss --all` elects the replicas with the longest logs"
)
STRAY_TEXT = (
    "the metadata does not contain the topics of 1 logs (4096 bytes): broker 2 /data/0/t-0-stray; "
    "`barnabas restore-metadata` restores the topics, and `barnabas forget-topic` deletes the logs"
)
STRAY = StrayLog(broker_id=2, directory="/data/0/t-0-stray", size_bytes=4096)


def state(*troubles: Trouble) -> ClusterState:
    return ClusterState({0: None}, {}, troubles=troubles)


def told(
    found: ClusterState | None,
    strays: tuple[StrayLog, ...] | None = (),
    why: str | None = None,
    before: Cluster = CLUSTER,
    now: str = NOW,
) -> Cluster:
    """The Cluster with its next status."""
    refusal = Refusal(NOT_READY, why) if why is not None else None
    return replace(before, status=cluster_status(before, now, refusal, Findings(None, found, strays)))


def said(cluster: Cluster, kind: str) -> tuple[str, str, str] | None:
    assert cluster.status is not None
    found = condition_of(cluster.status.conditions, kind)
    return (found.status, found.reason, found.message) if found is not None else None


def events(before: Cluster, after: Cluster) -> list[tuple[str, str, str]]:
    old = msgspec.to_builtins(before.status) if before.status is not None else {}
    return [(each["type"], each["reason"], each["message"]) for each in status_events(after, old, NOW)]


def test_a_cluster_is_not_ready_while_every_replica_of_a_partition_lacks_records() -> None:
    found = told(state(AWAY, LOST))
    assert said(found, "Ready") == ("False", "RecordsLost", LOST_TEXT)
    assert said(found, "RecordsLost") == ("True", "RecordsLost", LOST_TEXT)


def test_a_cluster_that_waits_still_reports_lost_records() -> None:
    found = told(state(LOST), why="waiting for broker 1 to be ready")
    assert said(found, "Ready") == ("False", "RecordsLost", LOST_TEXT)
    assert said(found, "RecordsLost") == ("True", "RecordsLost", LOST_TEXT)


def test_stray_logs_are_reported_and_the_cluster_stays_ready() -> None:
    found = told(state(), (STRAY,))
    assert said(found, "Ready") == ("True", "Reconciled", "")
    assert said(found, "LogsSetAside") == ("True", "UnknownTopics", STRAY_TEXT)


def test_a_condition_names_only_some_of_many_stray_logs() -> None:
    strays = tuple(StrayLog(broker_id=0, directory=f"/data/t-{each}-stray", size_bytes=1) for each in range(30))
    text = (said(told(state(), strays), "LogsSetAside") or ("", "", ""))[2]
    assert " 30 logs (30 bytes): broker 0 /data/t-0-stray, " in text
    assert "/data/t-4-stray and 25 more; " in text


def test_both_conditions_end_when_nothing_is_lost_or_stray_any_more() -> None:
    before = told(state(LOST), (STRAY,))
    after = told(state(), (), before=before)
    assert (said(after, "RecordsLost"), said(after, "LogsSetAside")) == (None, None)
    assert said(after, "Ready") == ("True", "Reconciled", "")
    assert events(before, after) == [
        ("Normal", "Ready", (f"the Cluster is ready again; the problem was RecordsLost: {LOST_TEXT}"))
    ]


def test_both_conditions_stay_without_new_events_while_no_broker_answers() -> None:
    before = told(state(LOST), (STRAY,))
    after = told(None, None, None, before, LATER)
    assert said(after, "RecordsLost") == ("True", "RecordsLost", LOST_TEXT)
    assert said(after, "LogsSetAside") == ("True", "UnknownTopics", STRAY_TEXT)
    back = told(state(LOST), (STRAY,), None, after, LATER)
    assert events(after, back) == []
    assert [each.last_transition_time for each in back.status.conditions[1:]] == [NOW, NOW] if back.status else False


def test_each_change_of_losses_causes_one_warning() -> None:
    quiet, lost = told(state()), told(state(LOST))
    assert events(quiet, lost) == [("Warning", "RecordsLost", LOST_TEXT)]
    assert events(lost, told(state(LOST), before=lost, now=LATER)) == []
    aside = told(state(LOST), (STRAY,), before=lost)
    assert events(lost, aside) == [("Warning", "LogsSetAside", STRAY_TEXT)]
    more = told(state(LOST), (STRAY, STRAY), before=aside)
    assert [(kind, reason) for kind, reason, _ in events(aside, more)] == [("Warning", "LogsSetAside")]
