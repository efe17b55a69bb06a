"""The Kubernetes Events of a Cluster, and the troubles of its pods that its status names."""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from barnabas_core.conventions import METADATA_LEVEL
from barnabas_operator.planning.brokers.broker_security import is_secured
from barnabas_operator.planning.brokers.broker_steps import ROLLING_PAUSED
from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.cluster_state import named_run
from barnabas_operator.planning.conditions import PAUSED, condition_before, listed
from barnabas_operator.planning.object_names import EventText, kube_event
from barnabas_operator.planning.status.cluster_status import PLAN_REFUSED, STARTING, plan_words
from barnabas_operator.planning.topics.reconcile_plan import is_asked_for
from barnabas_operator.planning.topics.replica_moves import MoveReplicas, TopicStep
from barnabas_operator.planning.topics.topic_plan import REPLICAS_MOVING
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


def cluster_events(cluster: Cluster, before: Json) -> Iterator[EventText]:
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


def _recovered(cluster: Cluster, before: Json) -> Iterator[EventText]:
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


def _rolls(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event when a rolling restart begins, is paused, or has ended."""
    rolling, was = condition_of(cluster.conditions, ROLLING), condition_before(before, ROLLING)
    if rolling is None or _phase(rolling.status, rolling.reason) == _phase(was.get("status"), was.get("reason")):
        return
    yield "Normal", _phase(rolling.status, rolling.reason), rolling.message


def _phase(status: str | None, reason: str | None) -> str:
    if status != "True":
        return ROLLED
    return ROLLING_PAUSED if reason == ROLLING_PAUSED else ROLLING


def _security(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event for each step that turns security on or off, and an Event after the last step."""
    step, was = condition_of(cluster.conditions, SECURITY_CHANGING), condition_before(before, SECURITY_CHANGING)
    if step is not None and step.reason != was.get("reason"):
        yield "Normal", step.reason, step.message
    elif step is None and was:
        now = "secured" if is_secured(cluster) else "open again"
        yield "Normal", SECURITY_CHANGED, f"every broker is {now} now"


def _marked_insecure(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event if the operator has set `insecure` in a Cluster from before `spec.insecure` existed."""
    status = cluster.status
    if before and "security" not in before and status is not None and status.security == "Insecure":
        why = "because the Cluster was created when open listeners were the default"
        yield "Normal", MARKED_INSECURE, f"the operator has set spec.insecure to true, {why}; the brokers do not change"


def _administrator(cluster: Cluster, before: Json) -> Iterator[EventText]:
    name = cluster.status.administrator if cluster.status is not None else None
    if name is not None and before.get("administrator") != name:
        yield (
            "Normal",
            ADMINISTRATOR_MADE,
            f"Secret {name} holds client.properties, with which clients connect as the user admin",
        )


def _proposal(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event for a new proposal to rebalance; changes to its numbers are not reported."""
    proposed = condition_of(cluster.conditions, REBALANCE_PROPOSED)
    if proposed is not None and not condition_before(before, REBALANCE_PROPOSED):
        yield "Normal", REBALANCE_PROPOSED, proposed.message


def _moves(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event when the last reassignment has ended."""
    moving, was = condition_of(cluster.conditions, REPLICAS_MOVING), condition_before(before, REPLICAS_MOVING)
    is_known = cluster.status is not None and cluster.status.topics is not None
    if moving is None and was and is_known:
        yield "Normal", REPLICAS_MOVED, "all reassignments of partitions have ended"


def moves_begin(cluster: Cluster, steps: Iterable[TopicStep]) -> EventText | None:
    """Return an Event if `steps` begin a reassignment and no reassignment was in progress; otherwise return None."""
    moved = {step.topic: len(step.assignments) for step in steps if isinstance(step, MoveReplicas)}
    if not moved or condition_of(cluster.conditions, REPLICAS_MOVING) is not None:
        return None
    why = "a rebalance was approved: " if is_asked_for(cluster) else ""
    of_topics = listed([f"{topic} ({count})" for topic, count in sorted(moved.items())])
    return "Normal", REPLICAS_MOVING, f"{why}partitions of these topics are being reassigned: {of_topics}"


def _plan(cluster: Cluster, before: Json) -> Iterator[EventText]:
    """Yield an Event when the rebalance plan that the Cluster's annotation names begins, is refused, or is done."""
    plan, was = condition_of(cluster.conditions, REBALANCING), condition_before(before, REBALANCING)
    if plan is None:
        return
    # The text of a refusal has no numbers that change with progress, so another text is another refusal.
    is_refused = plan.reason == PLAN_REFUSED
    message_before = was.get("message", "")
    is_another = (is_refused and plan.message != message_before) or _is_of_another_run(
        cluster, plan.message, message_before
    )
    if plan.reason != was.get("reason") or is_another:
        yield "Warning" if is_refused else "Normal", plan.reason, plan.message


def _is_of_another_run(cluster: Cluster, message: str, before: str) -> bool:
    """True if `message`, unlike `before`, is about the rebalance plan that the Cluster's annotation names.

    `before` is the earlier message of the condition.
    """
    words = plan_words(named_run(cluster) or "")
    return words in message and words not in before


def _metadata_version(cluster: Cluster, before: Json) -> Iterator[EventText]:
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


CONTAINER: Final = "broker"
QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The reasons for which a container waits while it starts normally."""
BACK_OFF: Final = "CrashLoopBackOff"
"""The reason of a container that waits before its next restart.

Messages do not show this reason; they say why the process of the container last ended.
"""
OUT_OF_MEMORY: Final = "OOMKilled"
KILLED: Final = 137
"""The exit code after SIGKILL: 128 plus the signal number."""

_SEVERE: Final = re.compile(r"\b(ERROR|CRITICAL)\b")
_TIME_OF_DAY: Final = re.compile(r"^\[[^\]]*\] ")
_PREEMPTION: Final = re.compile(r"\.? preemption: .*", re.DOTALL)


def runs(pod: Json) -> bool:
    """True if the broker's container runs according to the pod's status, which may be outdated if its node is down."""
    return "running" in _state(_container(pod))


def pod_trouble(pod: Json) -> str:
    """Return a description of the problem of a pod, or "" if the pod is ready or starts normally."""
    name, container = pod["metadata"]["name"], _container(pod)
    waiting = _other_container(pod) or _state(container).get("waiting", {})
    ended = _state(container).get("terminated") or container.get("lastState", {}).get("terminated")
    if runs(pod):
        why = _end(pod, ended) if ended is not None and not _was_ready_since(pod, container) else ""
        return f"{name} {why}; the broker has restarted and is not ready yet" if why else ""
    if ended is not None and waiting.get("reason", "") in QUIET | {BACK_OFF} and (why := _end(pod, ended)):
        return f"{name} {why}"
    if waiting.get("reason", "") not in QUIET:
        return f"{name}: {_words(waiting)}"
    return f"{name} is Pending: {unplaced}" if (unplaced := _unplaced(pod)) else _failed(pod)


def _was_ready_since(pod: Json, container: Json) -> bool:
    """True if the pod has become ready after its last start, so that the previous exit is no longer reported."""
    found = (each for each in pod.get("status", {}).get("conditions", ()) if each["type"] == "Ready")
    ready: Json = next(found, {})
    started_at, changed_at = _state(container)["running"].get("startedAt"), ready.get("lastTransitionTime")
    return ready.get("status") == "True" or bool(started_at and changed_at and started_at < changed_at)


def _end(pod: Json, ended: Json) -> str:
    """Return how the process ended: that it was killed, or its exit code and last log line.

    Return "" if the process was not killed and logged nothing.
    """
    code = ended.get("exitCode", 0)
    if ended.get("reason") == OUT_OF_MEMORY:
        return f"was OOMKilled (exit {code}){_at_limit(pod)}"
    if code == KILLED:
        return f"was killed (exit {code})"
    last = _last_words(str(ended.get("message") or ""))
    return f"ended (exit {code}): {last}" if last else ""


def _at_limit(pod: Json) -> str:
    specs = (each for each in pod["spec"].get("containers", ()) if each.get("name") == CONTAINER)
    container: Json = next(specs, {})
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    if limit is None:
        return (
            ": the node ran out of memory; set spec.brokers.resources.requests.memory to the memory that a broker needs"
        )
    return f" at the limit of {limit}; raise spec.brokers.resources.limits.memory"


def _last_words(log: str) -> str:
    """Return a log's last line with an error, or else its last line, and remove the time from the line."""
    lines = [line for line in log.strip().splitlines() if line.strip()]
    severe = [line for line in lines if _SEVERE.search(line)]
    return _TIME_OF_DAY.sub("", (severe or lines or [""])[-1]).strip()


def _container(pod: Json) -> Json:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    found: Json = next((each for each in statuses if each["name"] == CONTAINER), {})
    return found


def _state(container: Json) -> Json:
    state: Json = container.get("state", {})
    return state


def _other_container(pod: Json) -> Json:
    """Return the waiting state of an init container that blocks the broker, or an empty mapping."""
    status = pod.get("status", {})
    for each in status.get("initContainerStatuses", ()):
        waiting: Json = _state(each).get("waiting", {})
        if waiting.get("reason", "") not in QUIET:
            return waiting
    return {}


def _unplaced(pod: Json) -> str:
    """Return the scheduler's message about an unschedulable pod, without the part about preemption.

    The result is "" if the pod has no such condition.
    """
    found = (each for each in pod.get("status", {}).get("conditions", ()) if each.get("reason") == "Unschedulable")
    unplaced: Json = next(found, {})
    return _PREEMPTION.sub("", unplaced.get("message", "")).strip()


def _failed(pod: Json) -> str:
    """Return why the kubelet ended the pod, for example for lack of disk space, or "" if the pod has not failed."""
    status = pod.get("status", {})
    return f"{pod['metadata']['name']}: {_words(status)}" if status.get("phase") == "Failed" else ""


def _words(state: Json) -> str:
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


FAILED: Final = "FailedCreate"
START_S: Final = 120.0
_BEFORE_THE_REASON: Final = "failed error: "
_SECOND: Final = len("2026-01-31T23:59:59")


def why_not_made(pods: Collection[str], events: Iterable[Json]) -> str:
    """Return why one of `pods` could not be created, from the Events of the StatefulSet, or an empty text.

    The result is about the first pod whose last Event is a failure.
    """
    for pod in pods:
        about = [event for event in events if f"Pod {pod} " in f"{event.get('message', '')} "]
        if about and (last := max(about, key=_when))["reason"] == FAILED:
            return _reason(last)
    return ""


def why_not_bound(claims: Collection[str], events: Iterable[Json]) -> str:
    """Return the last warning about a claim whose name begins with one of `claims`, or "" if there is no warning.

    If there are warnings about several claims, the claim with the alphabetically first name is chosen.
    """
    about = [event for event in events if event["involvedObject"]["name"].startswith(tuple(claims))]
    if not about:
        return ""
    first = min(event["involvedObject"]["name"] for event in about)
    last = max((event for event in about if event["involvedObject"]["name"] == first), key=_when)
    return f"{first}: {_reason(last)}"


def last_warning(name: str, events: Iterable[Json]) -> str:
    """Return the last warning about the object `name`, or an empty text."""
    about = [event for event in events if event["involvedObject"]["name"] == name]
    return _reason(max(about, key=_when)) if about else ""


def is_slow(made_at: str, now: str) -> bool:
    """True if more than `START_S` seconds lie between `made_at` and `now`, which are in RFC 3339."""
    return made_at != "" and (datetime.fromisoformat(now) - datetime.fromisoformat(made_at)).total_seconds() > START_S


def _reason(event: Json) -> str:
    return str(event.get("message", "")).rpartition(_BEFORE_THE_REASON)[2].strip()


def _when(event: Json) -> str:
    """Return the time of an Event of the old or the new Events API, to the second."""
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    return str(at)[:_SECOND]


PODS_ENDING: Final = "PodsEnding"
PODS_OVERDUE: Final = "PodsOverdue"


class TerminatingPod(NamedTuple):
    """A pod with its node and the end of its grace period.

    `ends_at` is in RFC 3339, or "" if the pod is not deleted. `node` is "" if the pod is not scheduled.
    """

    name: str
    node: str
    ends_at: str

    def is_overdue(self, now: str) -> bool:
        """True if the grace period of the pod has ended; `now` is in RFC 3339, in UTC, to the second."""
        return "" < self.ends_at < now


def terminating_pod(found: Json) -> TerminatingPod:
    """Return the `TerminatingPod` for a pod's JSON from the API server."""
    meta = found["metadata"]
    return TerminatingPod(meta["name"], found.get("spec", {}).get("nodeName", ""), meta.get("deletionTimestamp", ""))


def is_away(node: Json | None) -> bool:
    """True if the node is not ready, or no longer exists (`node` is None)."""
    conditions = node.get("status", {}).get("conditions", ()) if node is not None else ()
    return all(each["status"] != "True" for each in conditions if each["type"] == "Ready")


def why_not_ended(overdue: Iterable[TerminatingPod], away: Collection[str]) -> str:
    """Return why each pod in `overdue` still exists after its grace period.

    `away` are the names of the nodes that are not ready or no longer exist.
    """
    return "; ".join(_why(pod, is_node_away=pod.node in away) for pod in overdue)


def _why(pod: TerminatingPod, *, is_node_away: bool) -> str:
    late = f"{pod.name} should have ended at {pod.ends_at}"
    if not is_node_away:
        return f"{late}, and its node {pod.node} is ready; check the kubelet of the node"
    way_on = f"if the node is gone for good, run: kubectl delete node {pod.node}"
    return f"{late}, and its node {pod.node} is not ready, so Kubernetes waits for the node; {way_on}"
