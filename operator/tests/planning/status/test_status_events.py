"""The changes of a status that are reported as Events."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
import pytest
from msgspec.structs import replace

from barnabas_operator.planning.cluster_state import APPROVAL
from barnabas_operator.planning.object_names import MESSAGE_LENGTH_MAX
from barnabas_operator.planning.rules_of_kinds import status_events
from barnabas_operator.planning.topics.replica_moves import AlterConfigs
from barnabas_operator.planning.topics.topic_plan import drift_undone
from barnabas_operator.resources.cluster import Cluster, ClusterStatus
from barnabas_operator.resources.consumer_group import (
    ConsumerGroup,
    ConsumerGroupSpec,
    ConsumerGroupStatus,
    ResetStatus,
)
from barnabas_operator.resources.kind import Condition, ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec, TopicStatus

NOW = "2026-01-01T00:00:00Z"
META = ObjectMeta(name="flights", namespace="air", uid="u-1")
READY = ("True", "Reconciled", "")
SMALL = ("False", "NotSupported", "spec.partitions is 2, the topic has 5")
SMALLER = ("False", "NotSupported", "spec.partitions is 1, the topic has 5")
BROKEN = ("False", "InvalidConfig", "retention.ms is many")
MOVING = ("False", "ReplicasMoving", "6 of 6 partitions are being reassigned")
FEWER = ("False", "ReplicasMoving", "2 of 6 partitions are being reassigned")
UNKNOWN = ("False", "ClusterNotReady", "Cluster one does not answer yet")
HOLDS = ("False", "BrokerHoldsReplicas", "broker 2 will be removed after these replicas have moved: a-0, a-1")
HOLDS_LESS = ("False", "BrokerHoldsReplicas", "broker 2 will be removed after these replicas have moved: a-1")
DOWN = ("False", "BrokersNotReady", "waiting for broker 1 to be ready")
SILENT = ("Unknown", "BrokersUnreachable", "no broker answers the operator at a:9091: timed out")
PAUSED = ("Unknown", "Paused", "spec.pause is true, so the operator changes nothing")
IN_TROUBLE = ("False", "BrokersNotReady", "flights-broker-1: CrashLoopBackOff")
EventText = tuple[str, str, str]


def conditions(said: EventText | None, kind: str = "Ready") -> tuple[Condition, ...]:
    if said is None:
        return ()
    status, reason, message = said
    told = Condition(
        type=kind,
        status=cast(Literal["True", "False", "Unknown"], status),
        reason=reason,
        message=message,
        last_transition_time=NOW,
        observed_generation=1,
    )
    return (told,)


def topic_events(
    before: TopicStatus | None, after: TopicStatus, partitions: int | None = None
) -> list[tuple[str, str, str]]:
    old: Mapping[str, Any] = msgspec.to_builtins(before) if before is not None else {}
    topic = Topic(metadata=META, spec=TopicSpec(partitions=partitions), status=after)
    return [(each["type"], each["reason"], each["message"]) for each in status_events(topic, old, NOW)]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, READY, None),
        (None, BROKEN, "Warning"),
        (None, UNKNOWN, None),
        (UNKNOWN, READY, None),
        (UNKNOWN, BROKEN, "Warning"),
        (READY, READY, None),
        (READY, SMALL, "Warning"),
        (SMALL, SMALL, None),
        (SMALL, SMALLER, "Warning"),
        (SMALL, BROKEN, "Warning"),
        (SMALL, READY, None),
        (READY, MOVING, "Normal"),
        (MOVING, FEWER, None),
        (FEWER, BROKEN, "Warning"),
    ],
)
def test_a_topic_reports_once_why_it_is_not_ready(before: EventText | None, after: EventText, kind: str | None) -> None:
    told = topic_events(TopicStatus(conditions=conditions(before)), TopicStatus(conditions=conditions(after)))
    assert told == ([] if kind is None else [(kind, *after[1:])])


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, DOWN, "Warning"),
        (READY, DOWN, "Warning"),
        (DOWN, DOWN, None),
        (DOWN, IN_TROUBLE, "Warning"),
        (DOWN, HOLDS, "Normal"),
        (HOLDS, HOLDS_LESS, None),
        (HOLDS_LESS, DOWN, "Warning"),
        (READY, SILENT, "Warning"),
        (READY, PAUSED, None),
        (PAUSED, READY, None),
        (READY, None, None),
    ],
)
def test_a_cluster_reports_what_it_waits_for_but_no_progress_of_it(
    before: EventText | None, after: EventText | None, kind: str | None
) -> None:
    cluster = Cluster(metadata=META, status=ClusterStatus(conditions=conditions(after)))
    old = msgspec.to_builtins(ClusterStatus(conditions=conditions(before)))
    told = [(each["type"], each["reason"], each["message"]) for each in status_events(cluster, old, NOW)]
    assert told == ([] if kind is None or after is None else [(kind, *after[1:])])


def test_the_first_start_of_a_cluster_is_reported_as_normal() -> None:
    starting = ("False", "BrokersStarting", "waiting for broker 0, 1 to be ready")
    fewer = ("False", "BrokersStarting", "waiting for broker 1 to be ready")
    told = []
    for before, after in ((None, starting), (starting, fewer), (fewer, READY)):
        cluster = Cluster(metadata=META, status=ClusterStatus(conditions=conditions(after)))
        old = msgspec.to_builtins(ClusterStatus(conditions=conditions(before)))
        told += [(each["type"], each["reason"], each["message"]) for each in status_events(cluster, old, NOW)]
    assert told == [("Normal", *starting[1:]), ("Normal", "Ready", "all brokers are ready")]


@pytest.mark.parametrize("before", [DOWN, IN_TROUBLE, SILENT])
def test_a_cluster_that_is_ready_again_reports_what_the_problem_was(before: EventText) -> None:
    cluster = Cluster(metadata=META, status=ClusterStatus(conditions=conditions(READY)))
    (event,) = status_events(cluster, msgspec.to_builtins(ClusterStatus(conditions=conditions(before))), NOW)
    assert (event["type"], event["reason"]) == ("Normal", "Ready")
    assert event["message"] == f"the Cluster is ready again; the problem was {before[1]}: {before[2]}"


CALM = ("False", "NoRestarts", "no broker has to restart")
ROLLS = ("True", "Restarting", "0 of 3 brokers run with the declared settings; broker 1 restarts")
ROLLS_ON = ("True", "UnderReplicated", "1 of 3 brokers run with the declared settings; waiting for a-0")
HELD_UP = ("True", "RollingPaused", "1 of 3 brokers run with the declared settings; spec.rolling.pause is true")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, CALM, None),
        (CALM, ROLLS, "Rolling"),
        (ROLLS, ROLLS_ON, None),
        (ROLLS_ON, HELD_UP, "RollingPaused"),
        (HELD_UP, ROLLS, "Rolling"),
        (ROLLS, CALM, "Rolled"),
    ],
)
def test_a_roll_is_reported_when_it_begins_is_paused_and_ends(
    before: EventText | None, after: EventText, reason: str | None
) -> None:
    cluster = Cluster(metadata=META, status=ClusterStatus(conditions=conditions(after, "Rolling")))
    old = msgspec.to_builtins(ClusterStatus(conditions=conditions(before, "Rolling")))
    told = [(each["type"], each["reason"], each["message"]) for each in status_events(cluster, old, NOW)]
    assert told == ([("Normal", reason, after[2])] if reason is not None else [])


UNDER_WAY = ("True", "PlanUnderWay", "1 of 9 partitions of the plan of MaintenanceJob even are moved")
MORE_MOVED = ("True", "PlanUnderWay", "2 of 9 partitions of the plan of MaintenanceJob even are moved")
OF_ANOTHER = ("True", "PlanUnderWay", "0 of 3 partitions of the plan of MaintenanceJob uneven are moved")
DONE = ("False", "PlanDone", "9 of 9 partitions of the plan of MaintenanceJob even are moved")
ANOTHER_DONE = ("False", "PlanDone", "3 of 3 partitions of the plan of MaintenanceJob uneven are moved")
REFUSED = ("False", "PlanRefused", "the annotation barnabas.dev/rebalance is even: the phase is Pending")
REFUSED_AGAIN = ("False", "PlanRefused", "the annotation barnabas.dev/rebalance is even: the phase is Failed")


@pytest.mark.parametrize(
    ("before", "after", "run", "kind"),
    [
        (None, UNDER_WAY, "even", "Normal"),
        (UNDER_WAY, MORE_MOVED, "even", None),
        (OF_ANOTHER, UNDER_WAY, "even", "Normal"),
        (UNDER_WAY, OF_ANOTHER, "uneven", "Normal"),
        (UNDER_WAY, DONE, "even", "Normal"),
        (DONE, ANOTHER_DONE, "uneven", "Normal"),
        (DONE, DONE, "even", None),
        (UNDER_WAY, REFUSED, "even", "Warning"),
        (REFUSED, REFUSED, "even", None),
        (REFUSED, REFUSED_AGAIN, "even", "Warning"),
        (UNDER_WAY, None, "even", None),
    ],
)
def test_a_rebalance_plan_is_reported_when_it_begins_ends_or_is_refused(
    before: EventText | None, after: EventText | None, run: str, kind: str | None
) -> None:
    status = ClusterStatus(conditions=conditions(after, "Rebalancing"))
    cluster = Cluster(metadata=replace(META, annotations={APPROVAL: run}), status=status)
    old = msgspec.to_builtins(ClusterStatus(conditions=conditions(before, "Rebalancing")))
    told = [(each["type"], each["reason"], each["message"]) for each in status_events(cluster, old, NOW)]
    assert told == ([] if kind is None or after is None else [(kind, *after[1:])])


@pytest.mark.parametrize(
    ("declared", "had", "has", "said"),
    [
        (12, 6, 12, "the number of partitions rose from 6 to 12"),
        (12, 6, 9, "the number of partitions rose from 6 to 9"),
        (12, 12, 12, ""),
        (6, None, 6, ""),
        (6, 6, 9, "the number of partitions rose from 6 to 9, because another client added partitions"),
        (None, 6, 9, "the number of partitions rose from 6 to 9, because another client added partitions"),
    ],
)
def test_added_partitions_are_reported_with_their_origin_and_a_new_topic_is_not(
    declared: int | None, had: int | None, has: int, said: str
) -> None:
    before, after = (TopicStatus(conditions=conditions(READY), partitions=count) for count in (had, has))
    assert topic_events(before, after, declared) == ([("Normal", "PartitionsRaised", said)] if said else [])
    assert topic_events(None, after, declared) == []


def test_the_end_of_replica_moves_is_reported() -> None:
    moving = ClusterStatus(conditions=conditions(("True", "ReplicasMoving", "flights (5)"), "ReplicasMoving"))
    still = replace(moving, topics=1)
    for after, told in ((still, []), (ClusterStatus(topics=1), ["ReplicasMoved"]), (ClusterStatus(), [])):
        found = status_events(Cluster(metadata=META, status=after), msgspec.to_builtins(moving), NOW)
        assert [each["reason"] for each in found] == told


def test_configs_that_others_changed_are_reported_when_they_are_set_back() -> None:
    step = AlterConfigs("flights", {"retention.ms": "5", "leader.replication.throttled.replicas": "*"})
    was = TopicStatus(conditions=conditions(READY), observed_generation=META.generation)
    said = drift_undone(Topic(metadata=META, spec=TopicSpec(), status=was), step)
    assert said == (
        "Normal",
        "DriftUndone",
        (
            "another client had changed configs of the topic, and the operator has undone the change: "
            "set configs of flights: retention.ms=5"
        ),
    )
    assert drift_undone(Topic(metadata=META, spec=TopicSpec(), status=TopicStatus()), step) is None


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        (None, ResetStatus(id="a", done_at=NOW, partitions=3), True),
        (ResetStatus(id="a"), ResetStatus(id="a", done_at=NOW, partitions=3), True),
        (ResetStatus(id="a", done_at=NOW), ResetStatus(id="b", done_at=NOW, partitions=3), True),
        (ResetStatus(id="a", done_at=NOW), ResetStatus(id="a", done_at=NOW), False),
        (None, ResetStatus(id="a"), False),
    ],
)
def test_a_reset_is_reported_once_when_it_was_carried_out(
    before: ResetStatus | None, after: ResetStatus, is_told: bool
) -> None:
    old = {"reset": msgspec.to_builtins(before)} if before is not None else {}
    group = ConsumerGroup(metadata=META, spec=ConsumerGroupSpec(), status=ConsumerGroupStatus(reset=after))
    found = [(each["reason"], each["message"]) for each in status_events(group, old, NOW)]
    numbers = "the offsets of 3 partitions were set; the group skips 0 records and reads 0 again"
    assert found == [("OffsetsReset", f"the reset {after.id} was carried out: {numbers}")] * is_told


def test_an_event_names_its_resource_and_cuts_a_long_message() -> None:
    status = TopicStatus(conditions=conditions(("False", "KafkaError", "x" * 5_000)))
    (event,) = status_events(Topic(metadata=META, spec=TopicSpec(), status=status), {}, NOW)
    assert event["involvedObject"] == {
        "apiVersion": "barnabas.dev/v1alpha1",
        "kind": "Topic",
        "namespace": "air",
        "name": "flights",
        "uid": "u-1",
    }
    assert len(event["message"]) == MESSAGE_LENGTH_MAX
    assert event["message"].endswith("x...")


@pytest.mark.parametrize(("before", "after", "is_told"), [(None, 2, False), (1, 2, True), (2, 2, False), (2, 1, False)])
def test_a_raised_metadata_level_is_reported(before: int | None, after: int, is_told: bool) -> None:
    old = {"metadataVersion": before} if before is not None else {}
    events = status_events(Cluster(metadata=META, status=ClusterStatus(metadata_version=after)), old, NOW)
    assert [each["reason"] for each in events] == ["MetadataVersionRaised"] * is_told
