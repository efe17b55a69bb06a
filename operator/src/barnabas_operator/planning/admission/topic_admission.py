"""The admission review of a change to a Topic, as pure functions."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.refusal import CLUSTER_NOT_READY
from barnabas_operator.planning.topics.topic_checks import not_internal, refuse, valid_config, valid_name
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.topic import Topic

NOTHING_KNOWN: Final = ClusterState(racks={}, topics={})
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
WITHOUT_A_CLUSTER: Final = (valid_name, not_internal, valid_config)


class _AppliedSpec(msgspec.Struct):
    config: dict[str, Any] = {}


class _Applied(msgspec.Struct):
    """The configs in the manifest that `kubectl apply` stored in its annotation."""

    spec: _AppliedSpec = msgspec.field(default_factory=_AppliedSpec)


def review_topic(wanted: Topic, before: Topic | None, context: AdmissionContext) -> Verdict:
    """Return the first reason to refuse a Topic, or warnings if there is none.

    Brokers that are down count as live brokers. If no broker has answered yet, or the Topic is paused, only the rules
    that hold in every cluster are checked.
    """
    if wanted.spec.pause:
        context = AdmissionContext()
    refusals = [
        _taken(wanted, context),
        _collides(wanted, before, context),
        _decreased(wanted, before),
        *_elsewhere(wanted, before),
    ]
    if context.state is not None:
        refusal = refuse(wanted, context.state.complete)
        refusals.append(refusal.message if refusal is not None and refusal.reason != CLUSTER_NOT_READY else None)
    else:
        found = (check(wanted, NOTHING_KNOWN) for check in WITHOUT_A_CLUSTER)
        refusals += [refusal.message for refusal in found if refusal is not None]
    said = next(filter(None, refusals), None)
    return Verdict(said, () if said else tuple(_topic_warnings(wanted, before, context)))


def _taken(wanted: Topic, context: AdmissionContext) -> str | None:
    if context.taken_by is None:
        return None
    allowed = "only one Topic resource may manage a topic"
    return f"topic {wanted.topic_name} is already managed by the Topic {context.taken_by}; {allowed}"


def _collides(wanted: Topic, before: Topic | None, context: AdmissionContext) -> str | None:
    """Return the refusal of a new Topic whose topic name differs from that of another Topic only in '.' and '_'."""
    is_there = before is not None or (context.state is not None and wanted.topic_name in context.state.topics)
    if context.collides_with is None or is_there:
        return None
    why = f"topic {wanted.topic_name} and the topic of the Topic {context.collides_with} differ only in '.' and '_'"
    return f"{why}, so both topics would have the same name in metrics; choose another name"


def _decreased(wanted: Topic, before: Topic | None) -> str | None:
    had, has = before.spec.partitions if before else None, wanted.spec.partitions
    if had is None or (has is not None and has >= had):
        return None
    now = "missing" if has is None else has
    return f"Decreasing partitions is not supported: spec.partitions is {now}; allowed: {had} or more"


def _elsewhere(wanted: Topic, before: Topic | None) -> Iterator[str]:
    """Yield refusals of changes to `topicName` and `cluster`, because a Topic cannot switch to another topic."""
    was, now = (before or wanted).spec, wanted.spec
    if was.topic_name != now.topic_name:
        had = was.topic_name or "no value"
        yield f"spec.topicName is {now.topic_name or 'missing'}; allowed: {had}, because a topic cannot be renamed"
    has_it = before.status.cluster if before is not None and before.status is not None else None
    left_out = () if was.cluster is not None else (None,)
    if has_it is not None and now.cluster not in (has_it, *left_out):
        way_out = ", or no value" if left_out else ""
        yield (
            f"spec.cluster is {now.cluster or 'missing'}; "
            f"allowed: {has_it} (a Topic cannot move to another Cluster){way_out}"
        )


def _topic_warnings(wanted: Topic, before: Topic | None, context: AdmissionContext) -> Iterator[str]:
    return (text for warn in WARNINGS if (text := warn(wanted, before, context)) is not None)


def keys_move(wanted: Topic, before: Topic | None, context: AdmissionContext) -> str | None:
    """Return a warning if the number of partitions grows, because many keys then map to other partitions."""
    found = context.state.topics.get(wanted.topic_name) if context.state is not None else None
    had = len(found.partitions) if found is not None else (before.spec.partitions if before else None)
    has = wanted.spec.partitions
    if had is None or has is None or has <= had:
        return None
    return f"after the change from {had} to {has} partitions, producers write many keys to other partitions than before"


def one_replica(wanted: Topic, _before: Topic | None, _context: AdmissionContext) -> str | None:
    """Return a warning if the topic has one replica, because every restart of its broker is an outage."""
    if wanted.spec.replicas != 1:
        return None
    return "spec.replicas is 1, so each partition is offline while its broker is down; topics usually have 3 replicas"


def no_spare_replica(wanted: Topic, _before: Topic | None, context: AdmissionContext) -> str | None:
    """Return a warning if writes with acks=all fail as soon as one replica is offline.

    If the Topic does not declare `min.insync.replicas`, the value of the Cluster is used.
    """
    own = declared_texts(wanted.spec.config).get("min.insync.replicas")
    fewest, whose = (own, "") if own is not None else (context.min_insync_replicas, " (from the Cluster)")
    by_default = context.state.default_replication_factor if context.state is not None else None
    replicas = wanted.spec.replicas or by_default
    if fewest is None or replicas is None or not fewest.isdecimal() or int(fewest) < replicas:
        return None
    if int(fewest) > replicas:
        return (
            f"min.insync.replicas is {fewest}{whose}, but the topic has {replicas} replicas: writes with acks=all fail"
        )
    if replicas == 1:
        return None  # `one_replica` already warns about a topic with one replica.
    return (
        f"min.insync.replicas is {fewest}{whose}, and the topic has {replicas} replicas, "
        "so writes with acks=all are refused while any replica is offline"
    )


def lost_nulls(wanted: Topic, _before: Topic | None, _context: AdmissionContext) -> str | None:
    """Return a warning if `kubectl apply` has removed configs that the user's manifest sets to null.

    kubectl's annotation last-applied-configuration still contains these configs.
    """
    applied = foreign_json(wanted.metadata.annotations.get(APPLIED, "{}"), _Applied) or _Applied()
    lost = [name for name, value in applied.spec.config.items() if value is None and name not in wanted.spec.config]
    if not lost:
        return None
    return (
        f"spec.config of the manifest sets {', '.join(lost)} to null, but kubectl apply removes null values, "
        "so these configs get their defaults; kubectl apply --server-side keeps null values"
    )


Warn = Callable[[Topic, Topic | None, AdmissionContext], str | None]
WARNINGS: Final[tuple[Warn, ...]] = (keys_move, one_replica, no_spare_replica, lost_nulls)
