"""`kubectl barnabas why POD`: why a broker does not restart, or is not ready, in one sentence. Pure."""

from collections.abc import Iterator
from typing import Final

from barnabas_kubectl.kubectl import CLUSTER_LABEL, JsonObject

BROKER_LABEL: Final = "barnabas.dev/broker-id"
WAITING_WITHOUT_FAULT: Final = ("ContainerCreating", "PodInitializing")


class NoBroker(Exception):
    """The error for a pod that is not a broker of a Cluster."""


def cluster_name(pod: JsonObject) -> str:
    """Return the name of the Cluster whose broker the pod is. Raises NoBroker."""
    labels = pod["metadata"].get("labels") or {}
    if CLUSTER_LABEL not in labels or broker_id(pod) is None:
        name = pod["metadata"]["name"]
        raise NoBroker(f"the pod {name} is not a broker of a Cluster: it lacks the label {CLUSTER_LABEL}")
    return str(labels[CLUSTER_LABEL])


def broker_id(pod: JsonObject) -> int | None:
    """Return the id of the broker in a pod, which is the number at the end of the pod's name."""
    number = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(number) if number.isdecimal() else None


def why(pod: JsonObject, cluster: JsonObject) -> str:
    """Return why the pod does not restart, or is not ready; the first reason in the order of their causes."""
    name = pod["metadata"]["name"]
    reason = next(_reasons(pod, cluster), None)
    return f"{name} {reason or _nothing(pod)}."


def _reasons(pod: JsonObject, cluster: JsonObject) -> Iterator[str]:
    yield from _of_the_pod(pod)
    yield from _of_the_cluster(cluster)
    yield from _of_the_roll(broker_id(pod), cluster.get("status") or {})
    if not _is_ready(pod):
        yield "runs, and is not ready: its broker has not joined the cluster yet; its log says what it does"


def _of_the_pod(pod: JsonObject) -> Iterator[str]:
    status = pod.get("status") or {}
    ends = pod["metadata"].get("deletionTimestamp")
    if ends:
        yield f"is ending, and will be killed at {ends} if it has not ended by itself"
    for each in status.get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield f"has no node: {_end(each.get('message') or each.get('reason') or 'no reason is given')}"
    for container in status.get("containerStatuses") or ():
        yield from _of_the_container(container)


def _of_the_container(container: JsonObject) -> Iterator[str]:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    waiting = state.get("waiting")
    ended = state.get("terminated") or last.get("terminated")
    if waiting is None and state.get("terminated") is None:
        return
    reason = (waiting or {}).get("reason") or "it has ended"
    if reason in WAITING_WITHOUT_FAULT:
        yield f"is starting: its container {container['name']} is in {reason}"
    elif ended is not None:
        how = f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode')}"
        message = f": {_end(ended['message'])}" if ended.get("message") else ""
        yield f"does not start ({reason}): its container {container['name']} ended with {how}{message}"
    else:
        message = (waiting or {}).get("message") or "no message is given"
        yield f"does not start ({reason}): {_end(message)}"


def _of_the_cluster(cluster: JsonObject) -> Iterator[str]:
    meta, spec, status = cluster["metadata"], cluster.get("spec") or {}, cluster.get("status") or {}
    if spec.get("pause"):
        yield "does not restart, because its Cluster has spec.pause: the operator changes nothing"
    if status.get("observedGeneration") != meta.get("generation"):
        yield (
            f"does not restart yet, because the operator has not acted on generation {meta.get('generation')} of the "
            f"Cluster (last: {status.get('observedGeneration', 'none')}); check that the operator runs"
        )


def _of_the_roll(number: int | None, status: JsonObject) -> Iterator[str]:
    rolling = status.get("rolling")
    if not rolling:
        return
    if number in (rolling.get("restarting") or ()):
        yield "is restarting, and its broker is not ready yet"
    if number in (rolling.get("remaining") or ()):
        waits = rolling.get("message") or _message(status, "Rolling") or "no reason is given"
        reason = f" ({rolling['blockedBy']})" if rolling.get("blockedBy") else ""
        yield f"is to restart, and waits{reason}: {_end(waits)}"


def _message(status: JsonObject, kind: str) -> str | None:
    found = (each.get("message") for each in status.get("conditions") or () if each["type"] == kind)
    return next(found, None)


def _is_ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _nothing(pod: JsonObject) -> str:
    since = (pod.get("status") or {}).get("startTime") or "its start"
    return f"is ready, and need not restart: it runs with the declared settings since {since}"


def _end(text: str) -> str:
    return " ".join(str(text).split()).rstrip(".")
