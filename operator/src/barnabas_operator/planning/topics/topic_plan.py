"""The steps that bring topics from their current state to the declared state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.configs import config_changes, declared_texts
from barnabas_operator.planning.owners import owned_by, owners
from barnabas_operator.planning.refusal import CLUSTER_NOT_READY, Refusal
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves
from barnabas_operator.planning.topics.replica_placement import place_partitions
from barnabas_operator.planning.topics.topic_checks import (
    OF_NUMBERS,
    OF_THE_RESOURCE,
    deletion_protected,
    enough_brokers,
    refuse,
    replicas_of,
    was_made_by,
)
from barnabas_operator.planning.topics.topic_status import PARTITIONS_OFFLINE, REPLICAS_MOVING
from barnabas_operator.planning.topics.topic_steps import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    TopicStep,
    describe,
)
from barnabas_operator.resources.object_meta import DRIFTED, READY, RECORDS_LOST, Condition, condition_of
from barnabas_operator.resources.topic import Topic

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
