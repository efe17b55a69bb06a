"""The status of a Topic after a reconciliation.

The conditions `RecordsLost` and `LogsSetAside` in the status of a Cluster. `RecordsLost` reports partitions that
stay offline until a user accepts the loss of records. `LogsSetAside` reports logs of unknown topics.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from barnabas_operator.planning.cluster_state import ClusterState, StrayLog, TopicState, Trouble
from barnabas_operator.planning.conditions import Refusal, condition, conditions_of, listed
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import (
    DRIFTED,
    LOGS_SET_ASIDE,
    RECORDS_LOST,
    Condition,
    condition_of,
    merge_conditions,
)
from barnabas_operator.resources.topic import Topic, TopicStatus

UNKNOWN_TOPICS: Final = "UnknownTopics"
_WAY_ON: Final = "`barnabas restore-metadata` restores the topics, and `barnabas forget-topic` deletes the logs"


def cluster_losses(
    cluster: Cluster, now: str, state: ClusterState | None, strays: Sequence[StrayLog] | None
) -> Iterator[Condition]:
    """Yield `RecordsLost` if records are lost, and `LogsSetAside` if brokers have logs of unknown topics.

    While no broker answers (`state` or `strays` is None), yield the condition unchanged if the status already has it.
    `now` is in RFC 3339.
    """
    if state is None:
        yield from as_before(cluster, RECORDS_LOST)
    elif lost := lost_in_cluster(state):
        yield condition(cluster, RECORDS_LOST, "True", lost.reason, lost.message, now)
    if strays is None:
        yield from as_before(cluster, LOGS_SET_ASIDE)
    elif strays:
        yield condition(cluster, LOGS_SET_ASIDE, "True", UNKNOWN_TOPICS, _set_aside(strays), now)


def lost_in_cluster(state: ClusterState) -> Refusal | None:
    """Return a Refusal that names the partitions without a leader because all their replicas have lost records.

    Without such partitions, return None.
    """
    lost = [trouble for trouble in state.troubles if trouble.lost is not None]
    return records_lost(lost, "--all") if lost else None


def records_lost(lost: Sequence[Trouble], which: str) -> Refusal:
    """Return a Refusal that names partitions with lost records.

    `which` holds the options with which `barnabas accept-loss` accepts the loss.
    """
    text = listed(f"{each.topic}-{each.partition} ({each.lost})" for each in lost)
    way_on = f"`barnabas accept-loss {which}` elects the replicas with the longest logs"
    return Refusal(
        RECORDS_LOST, f"partitions are offline because every replica lacks committed records: {text}; {way_on}"
    )


def _set_aside(strays: Sequence[StrayLog]) -> str:
    total = sum(each.size_bytes for each in strays)
    return (
        f"the metadata does not contain the topics of {len(strays)} logs ({total} bytes): {listed(strays)}; {_WAY_ON}"
    )


def as_before(cluster: Cluster, kind: str) -> Iterable[Condition]:
    """Return the condition of type `kind` in the status, which is kept while the current state is unknown."""
    reported = condition_of(cluster.status.conditions, kind) if cluster.status is not None else None
    return () if reported is None else (reported,)


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
