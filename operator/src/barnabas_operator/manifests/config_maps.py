"""The ConfigMaps with the brokers' properties files, one for each revision of the settings.

A pod mounts the ConfigMap of its own revision. So a broker that crashes during a roll restarts with its old settings.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.ownership import is_owned
from barnabas_operator.planning.brokers.pod_properties import pod_properties, restart_hash
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.brokers.server_properties import properties_text
from barnabas_operator.planning.object_names import pod_name, settings_name
from barnabas_operator.resources.cluster import Cluster


def config_map(cluster: Cluster, external: ExternalAccess, replicas: int) -> KubeObject:
    """Return the ConfigMap with a properties file for each broker; the file has the name of the broker's pod."""
    files = {
        f"{pod_name(cluster.metadata.name, number)}.properties": properties_text(
            pod_properties(cluster, number, external)
        )
        for number in range(replicas)
    }
    patches = [patch_of(cluster.spec.template.config_map)]
    return kube_object("v1", "ConfigMap", cluster, config_map_name(cluster, external), patches=patches, data=files)


def config_map_name(cluster: Cluster, external: ExternalAccess) -> str:
    """Return the name of the ConfigMap for the current settings."""
    return settings_name(cluster.metadata.name, restart_hash(cluster, external))


def leftover_config_maps(
    cluster: Cluster, pods: PodsState, found: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the outdated ConfigMaps; empty during a roll, because pods may still mount outdated ConfigMaps."""
    current = config_map_name(cluster, pods.external)
    return [
        each for each in found if pods.is_rolled_out and is_owned(cluster, each) and each["metadata"]["name"] != current
    ]
