"""The brokers' StatefulSet, whose pods are restarted only by the operator (`OnDelete`).

The ConfigMaps with the brokers' properties files, one for each revision of the settings. A pod mounts the ConfigMap
of its own revision. So a broker that crashes during a roll restarts with its old settings.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas_operator.manifests.kube_object import (
    CONTAINER_SECURITY,
    FOR_ITS_GROUP,
    POD_SECURITY,
    USER_ID,
    KubeObject,
    kube_object,
    patch_of,
    probe,
    token_mounts,
    token_volumes,
    workload_patches,
)
from barnabas_operator.planning.brokers.broker_security import SecurityStage, stage_name
from barnabas_operator.planning.brokers.local_properties import properties_text
from barnabas_operator.planning.brokers.pod_properties import (
    CERTIFICATES,
    CERTIFICATES_FOLDER,
    HOSTS,
    of_brokers,
    pod_properties,
    restart_asked,
    restart_hash,
    volume_folder,
)
from barnabas_operator.planning.brokers.pods import ExternalAccess, PodsState, given_addresses, is_owned
from barnabas_operator.planning.object_names import (
    ACCOUNT,
    CLUSTER_LABEL,
    GIVEN,
    HTTP_PORT,
    REPLICATION_PORT,
    RESTART,
    SECURITY_STAGE,
    broker_certificates_name,
    brokers_name,
    claim_name,
    labels,
    pod_name,
    selector,
    settings_name,
)
from barnabas_operator.resources.cluster import Cluster, Volume


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


CONFIG_FOLDER: Final = "/etc/barnabas"
ACCESS_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
CONFIG_HASH: Final = "barnabas.dev/config-hash"
START_S_MAX: Final = 1_800
PROBE_S: Final = 10
TOKEN_S: Final = 3_600
END_S_MAX: Final = 60
BROKER: Final = "broker"


def stateful_set(cluster: Cluster, external: ExternalAccess, image: str, replicas: int) -> KubeObject:
    """Return the StatefulSet. `replicas` is higher than declared while brokers are drained before their removal."""
    name, template = cluster.metadata.name, cluster.spec.template
    return kube_object(
        "apps/v1",
        "StatefulSet",
        cluster,
        brokers_name(name),
        annotations={GIVEN: json.dumps(given_addresses(cluster, external))},
        patches=workload_patches(cluster, template.stateful_set, template.pod, template.broker_container, BROKER),
        spec={
            "replicas": replicas,
            "serviceName": brokers_name(name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": dict(selector(name))},
            "template": _pod_template(cluster, external, image),
            "volumeClaimTemplates": [_claim(cluster, volume) for volume in cluster.spec.storage.volumes],
        },
    )


def _pod_template(cluster: Cluster, external: ExternalAccess, image: str) -> KubeObject:
    name, stage = cluster.metadata.name, external.stage_of(cluster)
    of_stage = {SECURITY_STAGE: named} if (named := stage_name(stage)) else {}
    account = {ACCOUNT: external.account_uid} if external.account_uid else {}
    restart = {RESTART: asked} if (asked := restart_asked(cluster)) else {}
    annotations = {CONFIG_HASH: restart_hash(cluster, external), **account, **of_stage, **restart}
    return {
        "metadata": {"labels": dict(labels(name)), "annotations": annotations},
        "spec": {
            "serviceAccountName": brokers_name(name),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": END_S_MAX,
            "securityContext": {**POD_SECURITY, "fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"},
            "containers": [_container(cluster, image, stage)],
            "volumes": [
                *_volumes(config_map_name(cluster, external)),
                *_certificates(cluster, stage),
                *token_volumes(of_brokers(cluster, stage)),
            ],
            "topologySpreadConstraints": _spread(cluster),
        },
    }


def _spread(cluster: Cluster) -> list[KubeObject]:
    """Return the topology spread constraints: brokers must be spread over racks, and should be spread over nodes."""
    chosen = {"labelSelector": {"matchLabels": dict(selector(cluster.metadata.name))}, "maxSkew": 1}
    rack = cluster.spec.brokers.rack
    keys = [("kubernetes.io/hostname", "ScheduleAnyway")]
    if rack is not None:
        keys.insert(0, (rack.topology_key, "DoNotSchedule"))
    return [{**chosen, "topologyKey": key, "whenUnsatisfiable": otherwise} for key, otherwise in keys]


def _container(cluster: Cluster, image: str, stage: SecurityStage) -> KubeObject:
    resources, metrics = cluster.spec.brokers.resources, of_brokers(cluster, stage)
    ports = {"replication": REPLICATION_PORT, "http": HTTP_PORT} | {
        each.name: each.port for each in cluster.spec.listeners
    }
    return {
        "name": BROKER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",  # The Cluster's status shows why a broker fails.
        "args": ["broker", f"{CONFIG_FOLDER}/$(POD_NAME).properties", *_hosts(cluster)],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _fields(cluster).items()
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
        "securityContext": dict(CONTAINER_SECURITY),
        "startupProbe": {**probe(metrics, "/startupz"), "periodSeconds": 1, "failureThreshold": START_S_MAX},
        "livenessProbe": {**probe(metrics, "/healthz"), "periodSeconds": PROBE_S, "failureThreshold": 6},
        "readinessProbe": {**probe(metrics, "/readyz"), "periodSeconds": 1, "failureThreshold": 1},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "access", "mountPath": ACCESS_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *_mounted_certificates(stage),
            *token_mounts(metrics),
            *(
                {"name": claim_name(volume.id), "mountPath": volume_folder(volume.id)}
                for volume in cluster.spec.storage.volumes
            ),
        ],
    }


def _fields(cluster: Cluster) -> dict[str, str]:
    """Return the environment variables of the container by name, each with the pod field that gives its value."""
    fields = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    return fields | {"HOST_IP": "status.hostIP"} if _hosts(cluster) else fields


def _hosts(cluster: Cluster) -> list[str]:
    """Return the broker's options for listeners that advertise the address of the node; empty if there are none."""
    hosts = ",".join(f"{each.name.upper()}:$(HOST_IP)" for each in cluster.spec.listeners if each.is_at_node)
    return ["--override", f"{HOSTS}={hosts}"] if hosts else []


def _volumes(settings: str) -> list[KubeObject]:
    """Return the volumes for settings, temporary files, and a ServiceAccount token that is renewed each hour."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_S}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return [
        {"name": "config", "configMap": {"name": settings}},
        {"name": "access", "projected": {"sources": [token, authority]}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]


def _certificates(cluster: Cluster, stage: SecurityStage) -> list[KubeObject]:
    """Return the volume with the brokers' certificates, or nothing for brokers without security."""
    if stage is SecurityStage.OPEN:
        return []
    source = {"secretName": broker_certificates_name(cluster.metadata.name), "defaultMode": FOR_ITS_GROUP}
    return [{"name": CERTIFICATES, "secret": source}]


def _mounted_certificates(stage: SecurityStage) -> list[KubeObject]:
    mount = {"name": CERTIFICATES, "mountPath": CERTIFICATES_FOLDER, "readOnly": True}
    return [] if stage is SecurityStage.OPEN else [mount]


def claims_of_pod(cluster: Cluster, pod: str) -> list[KubeObject]:
    """Return the volume claims of a pod, with the names that the StatefulSet controller would choose."""
    meta = {"namespace": cluster.metadata.namespace or "default", "labels": dict(selector(cluster.metadata.name))}
    made = (_claim(cluster, volume) for volume in cluster.spec.storage.volumes)
    return [{**each, "metadata": {**meta, "name": f"{each['metadata']['name']}-{pod}"}} for each in made]


def _claim(cluster: Cluster, volume: Volume) -> KubeObject:
    """Return a claim template. Its size applies only to new claims."""
    spec: KubeObject = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(volume.id), "labels": {CLUSTER_LABEL: cluster.metadata.name}},
        "spec": spec,
    }
