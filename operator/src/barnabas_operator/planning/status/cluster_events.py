"""The Kubernetes Events for changes to the status of a Cluster, and for restarts of its brokers."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas_core.conventions import METADATA_LEVEL
from barnabas_operator.planning.brokers.broker_security import is_secured
from barnabas_operator.planning.brokers.broker_steps import ROLLING_PAUSED
from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.conditions import PAUSED, condition_before, listed
from barnabas_operator.planning.object_names import Said, kube_event
from barnabas_operator.planning.rebalance_request import named_run
from barnabas_operator.planning.status.cluster_status import PLAN_REFUSED, STARTING, plan_words
from barnabas_operator.planning.topics.rebalance import is_asked_for
from barnabas_operator.planning.topics.replica_moves import MoveReplicas, TopicStep
from barnabas_operator.planning.topics.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import (
    READY,
    REBALANCE_PROPOSED,
    REBALANCING,
    ROLLING,
    SECURITY_CHANGING,
    Json,
    condition_of,
)

METADATA_VERSION_RAISED: Final = "MetadataVersionRaised"
SECURITY_CHANGED: Final = "SecurityChanged"
MARKED_INSECURE: Final = "MarkedInsecure"
ADMINISTRATOR_MADE: Final = "AdministratorMade"
ROLLED: Final = "Rolled"
REPLICAS_MOVED: Final = "ReplicasMoved"
BROKER_RESTARTED: Final = "BrokerRestarted"


def cluster_events(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield the Events of a Cluster with its new status; `before` is the old status as JSON."""
    yield from _recovered(cluster, before)
    yield from _rolls(cluster, before)
    yield from _security(cluster, before)
    yield from _marked_insecure(cluster, before)
    yield from _administrator(cluster, before)
    yield from _proposal(cluster, before)
    yield from _moves(cluster, before)
    yield from _plan(cluster, before)
    yield from _metadata_version(cluster, before)


def _recovered(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event that names the solved problem if the Cluster has become ready again.

    If only `spec.pause` had kept the Cluster from being ready, yield no Event.
    """
    ready, was = condition_of(cluster.conditions, READY), condition_before(before, READY)
    if ready is None or ready.status != "True" or was.get("status", "True") == "True" or was["reason"] == PAUSED:
        return
    if was["reason"] == STARTING:
        yield "Normal", READY, "all brokers are ready"
    else:
        yield "Normal", READY, f"the Cluster is ready again; the problem was {was['reason']}: {was.get('message', '')}"


def _rolls(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event when a rolling restart begins, is paused, or has ended."""
    rolling, was = condition_of(cluster.conditions, ROLLING), condition_before(before, ROLLING)
    if rolling is None or _phase(rolling.status, rolling.reason) == _phase(was.get("status"), was.get("reason")):
        return
    yield "Normal", _phase(rolling.status, rolling.reason), rolling.message


def _phase(status: str | None, reason: str | None) -> str:
    if status != "True":
        return ROLLED
    return ROLLING_PAUSED if reason == ROLLING_PAUSED else ROLLING


def _security(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event for each step that turns security on or off, and an Event after the last step."""
    step, was = condition_of(cluster.conditions, SECURITY_CHANGING), condition_before(before, SECURITY_CHANGING)
    if step is not None and step.reason != was.get("reason"):
        yield "Normal", step.reason, step.message
    elif step is None and was:
        now = "secured" if is_secured(cluster) else "open again"
        yield "Normal", SECURITY_CHANGED, f"every broker is {now} now"


def _marked_insecure(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event if the operator has set `insecure` in a Cluster from before `spec.insecure` existed."""
    status = cluster.status
    if before and "security" not in before and status is not None and status.security == "Insecure":
        why = "because the Cluster was created when open listeners were the default"
        yield "Normal", MARKED_INSECURE, f"the operator has set spec.insecure to true, {why}; the brokers do not change"


def _administrator(cluster: Cluster, before: Json) -> Iterator[Said]:
    name = cluster.status.administrator if cluster.status is not None else None
    if name is not None and before.get("administrator") != name:
        yield (
            "Normal",
            ADMINISTRATOR_MADE,
            f"Secret {name} holds client.properties, with which clients connect as the user admin",
        )


def _proposal(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event for a new proposal to rebalance; changes to its numbers are not reported."""
    proposed = condition_of(cluster.conditions, REBALANCE_PROPOSED)
    if proposed is not None and not condition_before(before, REBALANCE_PROPOSED):
        yield "Normal", REBALANCE_PROPOSED, proposed.message


def _moves(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event when the last reassignment has ended."""
    moving, was = condition_of(cluster.conditions, REPLICAS_MOVING), condition_before(before, REPLICAS_MOVING)
    is_known = cluster.status is not None and cluster.status.topics is not None
    if moving is None and was and is_known:
        yield "Normal", REPLICAS_MOVED, "all reassignments of partitions have ended"


def moves_begin(cluster: Cluster, steps: Iterable[TopicStep]) -> Said | None:
    """Return an Event if `steps` begin a reassignment and no reassignment was in progress; otherwise return None."""
    moved = {step.topic: len(step.assignments) for step in steps if isinstance(step, MoveReplicas)}
    if not moved or condition_of(cluster.conditions, REPLICAS_MOVING) is not None:
        return None
    why = "a rebalance was approved: " if is_asked_for(cluster) else ""
    of_topics = listed([f"{topic} ({count})" for topic, count in sorted(moved.items())])
    return "Normal", REPLICAS_MOVING, f"{why}partitions of these topics are being reassigned: {of_topics}"


def _plan(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Yield an Event when the rebalance plan that the Cluster's annotation names begins, is refused, or is done."""
    plan, was = condition_of(cluster.conditions, REBALANCING), condition_before(before, REBALANCING)
    if plan is None:
        return
    # The text of a refusal has no numbers that change with progress, so another text is another refusal.
    is_refused = plan.reason == PLAN_REFUSED
    before_said = was.get("message", "")
    is_another = (is_refused and plan.message != before_said) or _is_of_another_run(cluster, plan.message, before_said)
    if plan.reason != was.get("reason") or is_another:
        yield "Warning" if is_refused else "Normal", plan.reason, plan.message


def _is_of_another_run(cluster: Cluster, message: str, before: str) -> bool:
    """True if `message`, unlike `before`, is about the rebalance plan that the Cluster's annotation names.

    `before` is the earlier message of the condition.
    """
    words = plan_words(named_run(cluster) or "")
    return words in message and words not in before


def _metadata_version(cluster: Cluster, before: Json) -> Iterator[Said]:
    had = before.get("metadataVersion")
    has = cluster.status.metadata_version if cluster.status is not None else None
    if has is not None and had is not None and has > had:
        message = (
            f"{METADATA_LEVEL} rose from {had} to {has}; brokers that do not support the new level can no longer start"
        )
        yield "Normal", METADATA_VERSION_RAISED, message


def why_restarted(pod: BrokerPod) -> str:
    """Return why the pod of a broker must restart."""
    if pod.stale:
        return f"it {pod.stale}"
    if pod.restart_asked:
        return "an annotation of the pod requests a restart"
    if pod.is_cut_off:
        return "the ServiceAccount was deleted, so the broker has no access to the Kubernetes API"
    if pod.is_down:
        return "the broker is not running, and the Cluster has changed since the broker's pod was created"
    return "the Cluster has changed since the broker's pod was created"


def restart_event(cluster: Cluster, pod: BrokerPod, now: str) -> dict[str, Any]:
    """Return the Event for the restart of a broker; `now` is in RFC 3339."""
    message = f"broker {pod.broker_id} restarts: {why_restarted(pod)}"
    event = kube_event(cluster, "Normal", BROKER_RESTARTED, message, now)
    namespace = event["involvedObject"]["namespace"]
    return {**event, "related": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}}
