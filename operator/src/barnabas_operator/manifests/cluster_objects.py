"""The Kubernetes objects that a Cluster owns, in the order in which they are applied."""

from collections.abc import Collection

from msgspec.structs import replace

from barnabas_operator.manifests.access import broker_access
from barnabas_operator.manifests.config_maps import config_map
from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.lag_exporter import lag_exporter_objects
from barnabas_operator.manifests.neighbours import NOBODY_ELSE, Neighbours
from barnabas_operator.manifests.protection import MONITORING, disruption_budget, network_policy, pod_monitor
from barnabas_operator.manifests.secrets import credential_objects
from barnabas_operator.manifests.services import services
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.lag_exporter import LagExporterResources, LagExporterTemplate
from barnabas_operator.resources.template import ClusterTemplate, ListenerTemplate


def supporting_objects(
    cluster: Cluster, apis: Collection[str] = (), neighbours: Neighbours = NOBODY_ELSE, places: int = 0
) -> list[KubeObject]:
    """Return the objects that do not depend on the brokers' external addresses, such as Services.

    `apis` has the optional API groups of the API server; without the PodMonitor's group, no PodMonitor is returned.
    A broker with an id below `places` gets external Services even if it is no longer declared, because clients may
    connect to the broker until it is removed.
    """
    reached_by = services(cluster, max(places, cluster.spec.brokers.replicas))
    access = (*broker_access(cluster), *credential_objects(cluster))
    objects = [*access, *reached_by, disruption_budget(cluster), network_policy(cluster, neighbours)]
    return [*objects, pod_monitor(cluster, neighbours)] if MONITORING in apis else objects


def templated_objects(cluster: Cluster, image: str) -> list[KubeObject]:
    """Return the objects whose content depends on templates, network policy peers or the lag exporter's resources.

    Only the API server can validate these fields. `image` is the lag exporter's image if the Cluster declares none.
    """
    listeners = tuple(
        replace(each, template=ListenerTemplate(), network_policy_peers=()) for each in cluster.spec.listeners
    )
    exporter = cluster.spec.lag_exporter and replace(
        cluster.spec.lag_exporter, template=LagExporterTemplate(), resources=LagExporterResources()
    )
    spec = replace(cluster.spec, template=ClusterTemplate(), listeners=listeners, lag_exporter=exporter)
    both = zip(_judged_apart(cluster, image), _judged_apart(replace(cluster, spec=spec), image), strict=True)
    return [changed for changed, made in both if changed != made]


def _judged_apart(cluster: Cluster, image: str) -> list[KubeObject]:
    return [*supporting_objects(cluster), *lag_exporter_objects(cluster, image, (), NOBODY_ELSE)]


def broker_objects(cluster: Cluster, external: ExternalAccess, image: str, replicas: int) -> list[KubeObject]:
    """Return the ConfigMap and the StatefulSet of the brokers. `image` is used if the Cluster declares none."""
    return [
        config_map(cluster, external, replicas),
        stateful_set(cluster, external, cluster.spec.brokers.image or image, replicas),
    ]
