"""The steps that bring topics from their current state to the declared state, and the status of a Topic after them.

Replicas are placed by Kafka's algorithm, with its two random numbers derived from the topic. The same topic on the same
brokers always gets the same placement, so that planning twice gives the same plan, and partitions that are added later
are placed as if the topic had been created with them.

In the status of a Cluster, `RecordsLost` reports partitions that stay offline until a user accepts the loss of records,
and `LogsSetAside` reports logs of unknown topics.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import mmh3
from msgspec.structs import replace

from barnabas_core.errors import ApiError
from barnabas_core.placement import assign_replicas
from barnabas_core.topic_partition import KnownNames, check_topic_name, is_internal
from barnabas_operator.planning.cluster_state import (
    FOLLOWERS,
    LEADERS,
    ClusterState,
    ReplicaIds,
    StrayLog,
    TopicState,
    Trouble,
    config_changes,
    config_problems,
    declared_texts,
)
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_READY,
    DELETION_PROTECTED,
    INVALID_CONFIG,
    INVALID_TOPIC_NAME,
    NOT_ENOUGH_BROKERS,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    condition,
    conditions_of,
    listed,
    other_cluster,
    owned_by,
    owners,
)
from barnabas_operator.planning.object_names import EventText
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    ReplicaMoves,
    TopicStep,
    describe,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import (
    DRIFTED,
    LOGS_SET_ASIDE,
    READY,
    RECORDS_LOST,
    Condition,
    Json,
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


def place_partitions(
    topic: Topic, racks: Mapping[int, str | None], partitions: range, replication_factor: int
) -> tuple[ReplicaIds, ...]:
    """Return the replicas of the partitions in the range. The caller has checked that there are enough brokers."""
    start_index, shift = placement_seed(topic, len(racks))
    by_rack = racks if all(rack is not None for rack in racks.values()) else None
    placed = assign_replicas(sorted(racks), partitions.stop, replication_factor, start_index, shift, by_rack)
    return tuple(tuple(placed[number]) for number in partitions)


def placement_seed(topic: Topic, brokers: int) -> tuple[int, int]:
    """Return the start index and the shift for `assign_replicas`, each below the number of brokers.

    Both are parts of the MurmurHash3 of the topic's uid or, without a uid, of its name.
    """
    low, high = mmh3.hash64(topic.metadata.uid or topic.topic_name, signed=False)
    return low % brokers, high % brokers


TopicCheck = Callable[[Topic, ClusterState], Refusal | None]


def deletion_protected(what: str, first: str = "Delete or Retain") -> Refusal:
    """Return the refusal to delete `what`, such as `Topic flights`, because its deletion policy is Protect.

    `first` names the deletion policies that the user may set instead, such as `Delete or Retain`.
    """
    message = f"{what} and its resource are kept, because spec.deletionPolicy is Protect; first set {first}"
    return Refusal(DELETION_PROTECTED, message)


def refuse(topic: Topic, cluster: ClusterState, checks: Sequence[TopicCheck] | None = None) -> Refusal | None:
    """Return the refusal of the first check that refuses the Topic, or None if no check refuses the Topic.

    If `checks` is None, all checks run.
    """
    objections = (check(topic, cluster) for check in (CHECKS if checks is None else checks))
    return next((objection for objection in objections if objection is not None), None)


def valid_name(topic: Topic, cluster: ClusterState) -> Refusal | None:
    """Refuse a name that Kafka does not allow, or that collides with the name of another topic in metrics."""
    name = topic.topic_name
    try:
        check_topic_name(name)
    except ApiError as error:
        field = "spec.topicName" if topic.spec.topic_name is not None else "metadata.name"
        return Refusal(INVALID_TOPIC_NAME, f"{field}: {error}")
    other = None if name in cluster.topics else KnownNames(cluster.topics).colliding(name)
    return (
        Refusal(INVALID_TOPIC_NAME, f"topic {name} would have the same name in metrics as the topic {other}")
        if other
        else None
    )


def not_internal(topic: Topic, _cluster: ClusterState) -> Refusal | None:
    """Refuse the name of an internal topic, because brokers create and keep internal topics."""
    if not is_internal(topic.topic_name):
        return None
    return Refusal(
        NOT_SUPPORTED, f"spec.topicName is {topic.topic_name}, which is an internal topic; choose another name"
    )


def same_name_as_before(topic: Topic, _cluster: ClusterState) -> Refusal | None:
    """Refuse a topic name other than that in the status, because Kafka cannot rename a topic."""
    before = topic.status.topic_name if topic.status else None
    if before is None or before == topic.topic_name:
        return None
    return Refusal(
        NOT_SUPPORTED,
        f"Changing spec.topicName is not supported: the topic name is {topic.topic_name}; allowed: {before}",
    )


def same_cluster_as_before(topic: Topic, _cluster: ClusterState) -> Refusal | None:
    """Refuse a Topic that names another Cluster than its status, because the topic exists in the earlier Cluster."""
    return other_cluster(topic, topic.status.cluster if topic.status else None)


def valid_config(topic: Topic, _cluster: ClusterState) -> Refusal | None:
    """Refuse configs that are unknown or have invalid values."""
    problems = config_problems(topic.spec.config)
    return Refusal(INVALID_CONFIG, "; ".join(f"spec.config {problem}" for problem in problems)) if problems else None


def may_adopt(topic: Topic, cluster: ClusterState) -> Refusal | None:
    """Refuse an existing topic that the operator has not created for the Topic, unless `spec.adopt` is true."""
    found, had = cluster.topics.get(topic.topic_name), topic.status.topic_id if topic.status else None
    if topic.spec.adopt or found is None or found.topic_id == had or was_made_by(topic, found, cluster):
        return None
    was = (
        "existed before the Topic"
        if had is None
        else f"was deleted and created again by others (the topic id was {had}, and is now {found.topic_id})"
    )
    message = f"topic {topic.topic_name} {was}, and spec.adopt is false"
    return Refusal(RESOURCE_CONFLICT, f"{message}; to adopt the topic, set spec.adopt to true")


def was_made_by(topic: Topic, found: TopicState, cluster: ClusterState) -> bool:
    """True if the topic is as the Topic resource would create it.

    The operator has then created the topic for the resource, and only the status of the resource was lost.
    """
    replicas, partitions = replicas_of(topic, cluster), topic.spec.partitions or cluster.num_partitions
    if config_changes(topic.spec.config, found.overrides) or replicas > len(cluster.homes):
        return False
    numbers = range(min(partitions, len(found.partitions)))
    return found.targets == place_partitions(topic, cluster.homes, numbers, replicas)


def no_fewer_partitions(topic: Topic, cluster: ClusterState) -> Refusal | None:
    """Refuse fewer partitions, because Kafka cannot remove partitions without losing records."""
    found, wanted = cluster.topics.get(topic.topic_name), topic.spec.partitions
    if found is None or wanted is None or wanted >= len(found.partitions):
        return None
    has = len(found.partitions)
    return Refusal(
        NOT_SUPPORTED,
        f"Decreasing partitions is not supported: spec.partitions is {wanted}, "
        f"but the topic has {has}; allowed: {has} or more",
    )


def enough_brokers(topic: Topic, cluster: ClusterState) -> Refusal | None:
    """Refuse new replicas if there are fewer brokers than replicas.

    The Topic is invalid if it needs more brokers than declared, and waits if declared brokers are down.
    """
    found = cluster.topics.get(topic.topic_name)
    replicas, alive = replicas_of(topic, cluster), len(cluster.homes)
    if replicas <= alive or (found is not None and not _places_replicas(topic, found, cluster)):
        return None
    allowed = max(alive, cluster.declared)
    if replicas > allowed:
        message = f"spec.replicas is {replicas}; allowed: 1 to {allowed}, the number of brokers"
        return Refusal(NOT_ENOUGH_BROKERS, message)
    away = ", ".join(str(number) for number in range(cluster.declared) if number not in cluster.racks)
    lack = f"spec.replicas is {replicas}, but only {alive} of {cluster.declared} brokers are alive"
    return Refusal(CLUSTER_NOT_READY, f"{lack}; waiting for broker {away}")


def _places_replicas(topic: Topic, found: TopicState, cluster: ClusterState) -> bool:
    more_partitions = (topic.spec.partitions or 0) > len(found.partitions)
    more_replicas = any(len(row) < (topic.spec.replicas or 0) for row in found.targets)
    return more_partitions or more_replicas or any(cluster.leaving.intersection(row) for row in found.targets)


def reachable_min_insync(topic: Topic, cluster: ClusterState) -> Refusal | None:
    """Refuse fewer replicas than `min.insync.replicas`, because every write with acks=all would fail.

    If the Topic does not declare `min.insync.replicas`, the value of the Cluster is used.
    """
    text = declared_texts(topic.spec.config).get("min.insync.replicas")
    replicas = replicas_of(topic, cluster)
    if text is not None and int(text) > replicas:
        allowed = f"1 to {replicas}, the number of replicas"
        return Refusal(INVALID_CONFIG, f"spec.config min.insync.replicas={text}: allowed: {allowed}")
    fewest = cluster.default_min_insync_replicas
    if text is None and fewest > replicas:
        allowed = (
            f"{fewest} or more, as min.insync.replicas of the Cluster requires; "
            "spec.config of the Topic may set a lower min.insync.replicas"
        )
        return Refusal(INVALID_CONFIG, f"spec.replicas is {replicas}; allowed: {allowed}")
    return None


def replicas_of(topic: Topic, cluster: ClusterState) -> int:
    """Return the wanted number of replicas: the declared number, else the current number, else the default."""
    if topic.spec.replicas is not None:
        return topic.spec.replicas
    found = cluster.topics.get(topic.topic_name)
    return found.replication_factor if found is not None else cluster.default_replication_factor


OF_THE_RESOURCE: Final[tuple[TopicCheck, ...]] = (
    same_name_as_before,
    same_cluster_as_before,
    valid_name,
    not_internal,
    valid_config,
    may_adopt,
)
OF_NUMBERS: Final[tuple[TopicCheck, ...]] = (no_fewer_partitions, reachable_min_insync, enough_brokers)
"""The checks of the numbers of partitions and replicas; a change by another client may also make a check fail."""
CHECKS: Final = (*OF_THE_RESOURCE, *OF_NUMBERS)


PLACING: Final = (CreateTopic, IncreasePartitions, MoveReplicas)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plan for one Topic: the steps in order, and a refusal if some or all needed steps are not possible now.

    `drift` names changes by other clients that are not undone.
    """

    resource: Topic
    steps: tuple[TopicStep, ...] = ()
    refusal: Refusal | None = None
    drift: tuple[str, ...] = ()


def plan_topics(
    declared: Sequence[Topic], cluster: ClusterState, moves: ReplicaMoves | None = None
) -> tuple[TopicPlan, ...]:
    """Return a plan for each declared Topic, in the same order. `moves` chooses the brokers for moving replicas."""
    owned, moves = owners(declared, lambda topic: topic.topic_name), moves or ReplicaMoves(cluster)
    return tuple(_plan(topic, owned[topic.topic_name], cluster, moves) for topic in declared)


def plan_deletions(removed: Sequence[Topic], declared: Sequence[Topic], cluster: ClusterState) -> tuple[TopicPlan, ...]:
    """Return a plan for each Topic resource that a user has deleted. A refusal in the plan keeps the finalizer."""
    still_owned = {topic.topic_name for topic in declared}
    return tuple(_plan_deletion(topic, still_owned, cluster) for topic in removed)


def claimed_name(topic: Topic) -> str:
    """Return the name of the topic that belongs to the resource: the name in the status, else the declared name."""
    return (topic.status.topic_name if topic.status else None) or topic.topic_name


def _plan(topic: Topic, owner: Topic, cluster: ClusterState, moves: ReplicaMoves) -> TopicPlan:
    if owner is not topic:
        return TopicPlan(topic, refusal=owned_by(owner, topic.topic_name))
    if topic.spec.pause:
        return TopicPlan(topic)
    refusal = refuse(topic, cluster, OF_THE_RESOURCE)
    if refusal is not None:
        return TopicPlan(topic, refusal=refusal)
    found = cluster.topics.get(topic.topic_name)
    steps, refusal = _bring_about(topic, found, cluster, moves)
    if found is not None and was_brought_about(topic):
        return _of_drift(topic, found, steps, refusal)
    if found is not None and topic.spec.drift_policy == "Warn" and _is_moving(topic):
        steps = tuple(
            step for step in steps if not isinstance(step, AlterConfigs)
        )  # Config drift is reported only after all moves have ended.
    return TopicPlan(topic, steps) if refusal is None else TopicPlan(topic, refusal=refusal)


def _of_drift(topic: Topic, found: TopicState, steps: tuple[TopicStep, ...], refusal: Refusal | None) -> TopicPlan:
    """Return a plan that undoes changes of other clients or, if driftPolicy is Warn, a plan that only reports them.

    The report leaves out moves that keep the number of replicas, because `plan_moves` plans these moves.
    """
    drift = (f"not undone: {refusal.message}",) if refusal is not None else ()
    if topic.spec.drift_policy == "Revert":
        return TopicPlan(topic, steps, refusal, drift)
    undone = [step for step in steps if not (isinstance(step, MoveReplicas) and _keeps_numbers(step, found))]
    left = f"spec.driftPolicy is Warn, so these steps were skipped: {'; '.join(map(describe, undone))}"
    return TopicPlan(topic, drift=(*drift, left) if undone else drift)


def _keeps_numbers(step: MoveReplicas, found: TopicState) -> bool:
    return all(len(row) == len(found.targets[number]) for number, row in step.assignments.items())


def was_brought_about(topic: Topic) -> bool:
    """True if the topic has reached its declared state before. A difference is then a change by another client."""
    ready, drifted = (_reported(topic, kind) for kind in (READY, DRIFTED))
    is_there = ready is not None and (ready.status == "True" or ready.reason in (PARTITIONS_OFFLINE, RECORDS_LOST))
    return is_there or drifted is not None


def _is_moving(topic: Topic) -> bool:
    """True if the declared state is reached except for replicas that are still moving."""
    ready = _reported(topic, READY)
    return ready is not None and ready.reason == REPLICAS_MOVING


def _reported(topic: Topic, kind: str) -> Condition | None:
    """Return the condition of type `kind` if the status has it for the current generation; None otherwise."""
    if topic.status is None or topic.status.observed_generation != topic.metadata.generation:
        return None
    return condition_of(topic.status.conditions, kind)


def _bring_about(
    topic: Topic, found: TopicState | None, cluster: ClusterState, moves: ReplicaMoves
) -> tuple[tuple[TopicStep, ...], Refusal | None]:
    """Return the steps for a topic that are possible now, and a refusal that says why other needed steps are not."""
    refusal = refuse(topic, cluster, OF_NUMBERS)
    if enough_brokers(topic, cluster) is not None:
        return tuple(_set_configs(topic, found) if found is not None else ()), refusal
    steps = tuple(_change(topic, found, cluster, moves)) if found is not None else (_create(topic, cluster),)
    if cluster.awaited and any(isinstance(step, PLACING) for step in steps):
        listed = ", ".join(map(str, sorted(cluster.awaited)))
        refusal = refusal or Refusal(CLUSTER_NOT_READY, f"waiting for broker {listed} to join")
        steps = tuple(step for step in steps if not isinstance(step, PLACING))
    return steps, refusal


def _create(topic: Topic, cluster: ClusterState) -> CreateTopic:
    partitions = range(topic.spec.partitions or cluster.num_partitions)
    placed = place_partitions(topic, cluster.homes, partitions, replicas_of(topic, cluster))
    return CreateTopic(topic.topic_name, placed, declared_texts(topic.spec.config))


def _change(topic: Topic, found: TopicState, cluster: ClusterState, moves: ReplicaMoves) -> Iterator[TopicStep]:
    """Yield the steps that bring an existing topic to its declared state.

    Partitions are added only while there are enough brokers for the current replication factor.
    """
    fits = found.replication_factor <= len(cluster.homes)
    added = range(len(found.partitions), topic.spec.partitions or 0) if fits else range(0)
    placed = place_partitions(topic, cluster.homes, added, found.replication_factor) if added else ()
    if added:
        yield IncreasePartitions(topic.topic_name, added.stop, placed)
    yield from _set_configs(topic, found)
    moved = moves.of_topic(topic.topic_name, topic.spec.replicas, placed) if topic.spec.replicas else None
    if moved is not None:
        yield moved


def _set_configs(topic: Topic, found: TopicState) -> Iterator[AlterConfigs]:
    changes = config_changes(topic.spec.config, found.overrides)
    if changes:
        yield AlterConfigs(topic.topic_name, changes)


def _plan_deletion(topic: Topic, still_owned: set[str], cluster: ClusterState) -> TopicPlan:
    """Return the plan to delete the topic of a Topic.

    The plan has no steps if the Topic is paused, protected or retained, or if the topic belongs to another resource. A
    topic that `cluster` lacks may exist, because a broker's metadata may be seconds late. The plan deletes it by the
    topic id in the status, and the broker answers whether the id exists.
    """
    name = claimed_name(topic)
    found = cluster.topics.get(name)
    topic_id = found.topic_id if found is not None else _last_id(topic)
    if topic_id is None or name in still_owned or topic.spec.pause:
        return TopicPlan(topic)
    if found is not None and not _is_claimed(topic, found, cluster):
        return TopicPlan(topic)
    if found is not None and topic.spec.deletion_policy == "Protect":
        return TopicPlan(topic, refusal=deletion_protected(f"Topic {name}"))
    return TopicPlan(topic, (DeleteTopic(name, topic_id),) if topic.spec.deletion_policy == "Delete" else ())


def _last_id(topic: Topic) -> str | None:
    """Return the topic id in the status, or None if the status names no topic."""
    status = topic.status
    return status.topic_id if status is not None and status.topic_name is not None else None


def _is_claimed(topic: Topic, found: TopicState, cluster: ClusterState) -> bool:
    """True if the topic is the one that belongs to the resource, and not a later topic of the same name.

    If the status has no topic id, the replicas and configs of the topic must be those with which the operator creates
    a topic for the resource.
    """
    last_id = _last_id(topic)
    if last_id is not None:
        return last_id == found.topic_id
    return was_made_by(topic, found, cluster)


PARTITIONS_RAISED: Final = "PartitionsRaised"
DRIFT_UNDONE: Final = "DriftUndone"


def topic_events(topic: Topic, before: Json) -> Iterator[EventText]:
    """Yield an Event if the topic has got more partitions; `before` is the earlier status of the Topic as JSON."""
    had = before.get("partitions")
    count = topic.status.partitions if topic.status is not None else None
    if count is None or had is None or count <= had:
        return
    declared = topic.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", because another client added partitions"
    yield "Normal", PARTITIONS_RAISED, f"the number of partitions rose from {had} to {count}{by_whom}"


def drift_undone(before: Topic, step: TopicStep) -> EventText | None:
    """Return an Event if the step undoes config changes of another client, or None if it does not.

    `before` is the Topic before the step. Changes to throttle configs are not reported, because the operator makes
    them itself.
    """
    if not isinstance(step, AlterConfigs) or not was_brought_about(before):
        return None
    changes = {name: value for name, value in step.changes.items() if name not in (LEADERS, FOLLOWERS)}
    if not changes:
        return None
    undone = describe(AlterConfigs(step.topic, changes))
    return (
        "Normal",
        DRIFT_UNDONE,
        f"another client had changed configs of the topic, and the operator has undone the change: {undone}",
    )
