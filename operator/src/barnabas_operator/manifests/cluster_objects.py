"""Every object that a Cluster owns, in the order in which they are applied."""

from collections.abc import Collection

from barnabas_operator.manifests.access import access_objects
from barnabas_operator.manifests.kube_object import KubeObject, kube_object
from barnabas_operator.manifests.protection import MONITORING, disruption_budget, network_policy, pod_monitor
from barnabas_operator.manifests.services import services
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.facts import Facts
from barnabas_operator.planning.object_names import brokers_name, pod_name
from barnabas_operator.planning.pod_properties import pod_properties
from barnabas_operator.planning.server_properties import properties_text
from barnabas_operator.resources.cluster import Cluster


def surrounding_objects(cluster: Cluster, apis: Collection[str] = ()) -> list[KubeObject]:
    """What does not need to know where brokers are reached from outside; applying it is how one gets to know.

    `apis` are the group versions that the API server has: a PodMonitor is made where there can be one.
    """
    reached_by = services(cluster, cluster.spec.brokers.replicas)
    objects = [*access_objects(cluster), *reached_by, disruption_budget(cluster), network_policy(cluster)]
    return [*objects, pod_monitor(cluster)] if MONITORING in apis else objects


def broker_objects(cluster: Cluster, facts: Facts, image: str, replicas: int) -> list[KubeObject]:
    """The brokers' settings and their pods. `image` is for a Cluster that names none."""
    return [
        config_map(cluster, facts, replicas),
        stateful_set(cluster, facts, cluster.spec.brokers.image or image, replicas),
    ]


def config_map(cluster: Cluster, facts: Facts, replicas: int) -> KubeObject:
    """A file of settings for each broker, called like its pod."""
    name = cluster.metadata.name
    files = {
        f"{pod_name(name, number)}.properties": properties_text(pod_properties(cluster, number, facts))
        for number in range(replicas)
    }
    return kube_object("v1", "ConfigMap", cluster, brokers_name(name), data=files)
