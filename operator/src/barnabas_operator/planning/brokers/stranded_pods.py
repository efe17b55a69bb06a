"""Pods of a StatefulSet that is gone, which the one that was made anew cannot adopt. Pure.

Kubernetes should have deleted them with it. Where its garbage collector does not, they run on, and no StatefulSet has
them: one adopts only pods that no other controller owns, and makes none where the name is taken.
"""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.planning.time_text import seconds_between
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

COLLECTED_S: Final = 30
"""For so long the garbage collector may delete them: whoever deletes a StatefulSet with its pods means these, too."""


def stranded_pods(cluster: Cluster, pods: PodsState, now: str) -> Iterator[BrokerPod]:
    """Those that their controller's reference keeps from being adopted; `now` in RFC 3339.

    Of all StatefulSets of a name in a namespace one is there: while it is, any other uid is of one that is gone.
    """
    there = pods.broker_set
    if there is None or there.is_ending or not there.made_at or seconds_between(there.made_at, now) < COLLECTED_S:
        return
    for pod in pods.pods.values():
        if not pod.is_ending and len(owners_left(cluster, pod, there.uid)) < len(pod.owners):
            yield pod


def owners_left(cluster: Cluster, pod: BrokerPod, uid: str) -> list[Json]:
    """A pod's owners without the StatefulSet that was there before the one with this uid."""
    return [each for each in pod.owners if each["uid"] == uid or not _is_stateful_set(cluster, each)]


def _is_stateful_set(cluster: Cluster, owner: Json) -> bool:
    """Of the Cluster, by its name, and of Kubernetes: others have a kind of that name, too."""
    is_one = owner["kind"] == "StatefulSet" and owner["apiVersion"].partition("/")[0] == "apps"
    return bool(is_one and owner["name"] == brokers_name(cluster.metadata.name) and owner.get("controller"))
