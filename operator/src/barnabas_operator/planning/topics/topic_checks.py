"""The checks that may refuse a Topic; the first refusal becomes the condition of the Topic."""

from collections.abc import Callable, Sequence
from typing import Final

from barnabas_core.errors import ApiError
from barnabas_core.topic_name import KnownNames, check_topic_name, is_internal
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.configs import config_changes, config_problems, declared_texts
from barnabas_operator.planning.owners import other_cluster
from barnabas_operator.planning.refusal import (
    CLUSTER_NOT_READY,
    DELETION_PROTECTED,
    INVALID_CONFIG,
    INVALID_TOPIC_NAME,
    NOT_ENOUGH_BROKERS,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
)
from barnabas_operator.planning.topics.replica_placement import place_partitions
from barnabas_operator.resources.topic import Topic

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
