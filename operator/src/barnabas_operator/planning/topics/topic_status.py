"""The status of a Topic after a reconciliation."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from barnabas_operator.planning.cluster_state import TopicState, Trouble
from barnabas_operator.planning.conditions import condition, conditions_of
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.planning.topics.lost_records import records_lost
from barnabas_operator.resources.object_meta import DRIFTED, Condition, merge_conditions
from barnabas_operator.resources.topic import Topic, TopicStatus

REPLICAS_MOVING: Final = "ReplicasMoving"
PARTITIONS_OFFLINE: Final = "PartitionsOffline"


def topic_status(
    topic: Topic,
    found: TopicState | None,
    problem: Refusal | None,
    now: str,
    troubles: Collection[Trouble] = (),
    drift: Sequence[str] = (),
    cluster: str | None = None,
) -> TopicStatus:
    """Return the new status of a Topic; `found` is the topic after this reconciliation, and `now` is in RFC 3339.

    `problem` is the refusal of the Topic, if there is one. `troubles` are the partitions that are not fully replicated;
    the Topic is not ready if one of them has no leader. `drift` names changes by other clients that were not undone.

    `cluster` is the name of the Cluster. A Topic that is refused or paused keeps `topicId` in its status, so that its
    deletion does not delete a later topic of the same name.
    """
    before, is_ours = topic.status or TopicStatus(), problem is None and not topic.spec.pause
    if problem is None and not drift and found is not None and (moving := _moving(topic, found)):
        message = f"{moving} of {len(found.partitions)} partitions are being reassigned"
        problem = Refusal(REPLICAS_MOVING, message)
    offline = [trouble for trouble in troubles if trouble.offline]
    if problem is None and offline:
        problem = _offline(offline)
    conditions = (*conditions_of(topic, problem, now), *([_drifted(topic, drift, now)] if drift else ()))
    current = merge_conditions(before.conditions, conditions)
    claimed = before.topic_name or (topic.topic_name if is_ours and found is not None else None)
    return TopicStatus(
        conditions=current,
        observed_generation=topic.metadata.generation,
        cluster=before.cluster or (cluster if claimed else None),
        topic_name=claimed,
        topic_id=found.topic_id if found and is_ours else before.topic_id,
        partitions=len(found.partitions) if found else None,
        replicas=found.replication_factor if found else None,
        under_replicated_partitions=len(troubles) if found else None,
        offline_partitions=len(offline) if found else None,
    )


def without_cluster(topic: Topic, why: Refusal, now: str) -> Topic:
    """Return the Topic with a status that says why it is not reconciled; `now` is in RFC 3339."""
    return replace(topic, status=topic_status(topic, None, why, now))


def _offline(offline: Sequence[Trouble]) -> Refusal:
    """Return a Refusal that names the partitions with lost records or, without lost records, all offline partitions."""
    lost = [trouble for trouble in offline if trouble.lost is not None]
    if lost:
        return records_lost(lost, f"--topic {lost[0].topic}")
    return Refusal(PARTITIONS_OFFLINE, f"partitions are offline: {listed([str(each) for each in offline])}")


def _moving(topic: Topic, found: TopicState) -> int:
    wanted = None if topic.spec.pause else topic.spec.replicas
    return sum(number in found.moving or wanted not in (None, len(row)) for number, row in enumerate(found.partitions))


def _drifted(topic: Topic, drift: Sequence[str], now: str) -> Condition:
    return condition(topic, DRIFTED, "True", "ChangedByOthers", "; ".join(drift), now)
