"""The Kubernetes objects that a Cluster owns, in the order in which they are applied.

The pods of the brokers' StatefulSet are restarted only by the operator (`OnDelete`). Each revision of the settings has
a ConfigMap with the brokers' properties files. A pod mounts the ConfigMap of its own revision, so a broker that crashes
during a roll restarts with its old settings. The lag exporter is a Deployment.
"""

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from barnabas_core.conventions import credential_secrets
from barnabas_operator.manifests.kube_object import (
    CONTAINER_SECURITY,
    FOR_ITS_GROUP,
    MONITORING,
    NOBODY_ELSE,
    POD_SECURITY,
    USER_ID,
    ClientAccess,
    KubeObject,
    Neighbours,
    broker_access,
    client_access,
    disruption_budget,
    kube_object,
    metrics_endpoint,
    network_policy,
    patch_of,
    pod_monitor,
    probe,
    role_binding,
    token_mounts,
    token_volumes,
    workload_patches,
)
from barnabas_operator.planning.brokers.broker_security import SecurityStage, is_secured, stage_name
from barnabas_operator.planning.brokers.cluster_secrets import WantedSecret
from barnabas_operator.planning.brokers.local_properties import name_options, properties_text
from barnabas_operator.planning.brokers.pod_properties import (
    CERTIFICATES,
    CERTIFICATES_FOLDER,
    HOSTS,
    exporter_options,
    of_brokers,
    of_exporter,
    pod_properties,
    restart_asked,
    restart_hash,
    volume_folder,
)
from barnabas_operator.planning.brokers.pods import ExternalAccess, PodsState, given_addresses, is_owned
from barnabas_operator.planning.object_names import (
    ACCOUNT,
    BROKER_LABEL,
    CLUSTER_LABEL,
    GIVEN,
    HTTP_PORT,
    LAG_EXPORTER_PORT,
    LISTENER_LABEL,
    REPLICATION_PORT,
    RESTART,
    SECURITY_STAGE,
    bootstrap_name,
    broker_certificates_name,
    broker_service_name,
    brokers_name,
    claim_name,
    credentials_access_name,
    labels,
    lag_exporter_name,
    lag_exporter_selector,
    pod_name,
    selector,
    settings_name,
)
from barnabas_operator.resources.cluster import Cluster, Listener, Volume
from barnabas_operator.resources.cluster_kind import RBAC, credential_rules
from barnabas_operator.resources.kind import ClusterTemplate, ListenerTemplate
from barnabas_operator.resources.security import LagExporter, LagExporterResources, LagExporterTemplate, Metrics

CONTAINER: Final = "lag-exporter"
LAG_EXPORTER_END_S_MAX: Final = 10
PROBE_S: Final = 10
HEALTH: Final = "/healthz"


def lag_exporter_objects(
    cluster: Cluster, image: str, apis: Collection[str], neighbours: Neighbours
) -> list[KubeObject]:
    """Return the objects of the lag exporter, or an empty list if the Cluster declares no lag exporter.

    The PodMonitor is left out if `apis` lacks the API group of PodMonitors. `image` is the operator's image, which is
    used if the Cluster declares no image.
    """
    declared = cluster.spec.lag_exporter
    if declared is None:
        return []
    deployment = _deployment(cluster, declared, declared.image or image)
    return [deployment, *([_pod_monitor(cluster, declared, neighbours)] if MONITORING in apis else [])]


def _deployment(cluster: Cluster, declared: LagExporter, image: str) -> KubeObject:
    """Return the Deployment. It has one pod, because two pods would export every metric twice."""
    name, chosen = cluster.metadata.name, dict(lag_exporter_selector(cluster.metadata.name))
    access, metrics = client_access(cluster, lag_exporter_name(name)), of_exporter(cluster)
    template = declared.template
    return kube_object(
        "apps/v1",
        "Deployment",
        cluster,
        lag_exporter_name(name),
        more_labels=chosen,
        patches=workload_patches(cluster, template.deployment, template.pod, template.container, CONTAINER),
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": chosen},
            "template": {
                "metadata": {"labels": {**labels(name), **chosen}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": LAG_EXPORTER_END_S_MAX,
                    "securityContext": {**POD_SECURITY, **({"fsGroup": USER_ID} if access.secret else {})},
                    **({"volumes": [*access.volumes, *token_volumes(metrics)]} if access.secret else {}),
                    "containers": [_lag_exporter_container(access, metrics, declared, image)],
                },
            },
        },
    )


def _lag_exporter_container(
    access: ClientAccess, metrics: Metrics | None, declared: LagExporter, image: str
) -> KubeObject:
    resources = declared.resources
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": ["lag-exporter", *_options(access, metrics, declared)],
        "ports": [{"name": "http", "containerPort": LAG_EXPORTER_PORT, "protocol": "TCP"}],
        "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
        "securityContext": dict(CONTAINER_SECURITY),
        **({"volumeMounts": [*access.mounts, *token_mounts(metrics)]} if access.secret else {}),
        "livenessProbe": {**probe(metrics, HEALTH), "periodSeconds": PROBE_S, "failureThreshold": 6},
        "readinessProbe": {**probe(metrics, HEALTH), "periodSeconds": PROBE_S, "failureThreshold": 1},
    }


def _options(access: ClientAccess, metrics: Metrics | None, declared: LagExporter) -> list[str]:
    return [
        f"--bootstrap={access.bootstrap}",
        *access.options,
        f"--listen-address=:{LAG_EXPORTER_PORT}",
        *exporter_options(metrics),
        *name_options(declared),
    ]


def _pod_monitor(cluster: Cluster, declared: LagExporter, neighbours: Neighbours) -> KubeObject:
    name = cluster.metadata.name
    relabelings = [{"targetLabel": "cluster", "replacement": name}]
    endpoint = metrics_endpoint(of_exporter(cluster), cluster.metadata, lag_exporter_name(name), relabelings)
    return kube_object(
        MONITORING,
        "PodMonitor",
        cluster,
        lag_exporter_name(name),
        more_labels={**lag_exporter_selector(name), **neighbours.monitor_labels},
        patches=[patch_of(declared.template.pod_monitor)],
        spec={
            "selector": {"matchLabels": dict(lag_exporter_selector(name))},
            "podMetricsEndpoints": [endpoint],
        },
    )


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


def secret(cluster: Cluster, wanted: WantedSecret) -> KubeObject:
    """Return a Secret. It has no owner reference if it must outlive its Cluster."""
    made = kube_object(
        "v1", "Secret", cluster, wanted.name, annotations=wanted.marks, type="Opaque", data=_encoded(wanted.data)
    )
    return _without_owner(made) if wanted.outlives else made


def credential_objects(cluster: Cluster) -> list[KubeObject]:
    """Return the empty Secrets that brokers fill with SCRAM credentials, with Role and RoleBinding.

    Nothing is returned for a Cluster without security. The Secrets outlive the Cluster, so that users keep their
    passwords.
    """
    if not is_secured(cluster):
        return []
    name = credentials_access_name(cluster.metadata.name)
    secrets = [
        _without_owner(kube_object("v1", "Secret", cluster, each, type="Opaque"))
        for each in credential_secrets(cluster.metadata.name)
    ]
    role = kube_object(f"{RBAC}/v1", "Role", cluster, name, rules=credential_rules(cluster.metadata.name))
    return [*secrets, role, role_binding(cluster, name, "Role", name, brokers_name(cluster.metadata.name))]


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in data.items()}


def _without_owner(item: KubeObject) -> KubeObject:
    meta = {name: value for name, value in item["metadata"].items() if name != "ownerReferences"}
    return {**item, "metadata": meta}


SERVICE_TYPES: Final = {"internal": "ClusterIP", "nodeport": "NodePort", "loadbalancer": "LoadBalancer"}


def services(cluster: Cluster, replicas: int) -> list[KubeObject]:
    """Return all Services of a Cluster with `replicas` brokers."""
    outside = [each for each in cluster.spec.listeners if each.type != "internal"]
    return [
        _headless(cluster),
        _bootstrap(cluster),
        *(_bootstrap_outside(cluster, each) for each in outside),
        *(_of_broker(cluster, each, number) for each in outside for number in range(replicas)),
    ]


def with_node_port(item: KubeObject, given: Mapping[str, str]) -> KubeObject:
    """Return a NodePort Service with its previous node port if it declares none; return other objects unchanged."""
    if item["kind"] != "Service" or item["spec"].get("type") != "NodePort":
        return item
    (first, *others), before = item["spec"]["ports"], given.get(item["metadata"]["name"], "")
    if not before.isdecimal() or "nodePort" in first:
        return item
    return {**item, "spec": {**item["spec"], "ports": [{**first, "nodePort": int(before)}, *others]}}


def leftover_services(cluster: Cluster, pods: PodsState, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the Cluster's Services that can be deleted.

    The Service of a broker stays until the broker is removed. The Services of a removed listener stay until all brokers
    have restarted, because clients can use the listener until then.
    """
    wanted = {each["metadata"]["name"] for each in services(cluster, max(pods.count, cluster.spec.brokers.replicas))}
    declared = {each.name for each in cluster.spec.listeners if each.type != "internal"}
    return [
        each
        for each in found
        if is_owned(cluster, each)
        and each["metadata"]["name"] not in wanted
        and (pods.is_rolled_out or each["metadata"]["labels"].get(LISTENER_LABEL) in declared)
    ]


def _headless(cluster: Cluster) -> KubeObject:
    """Return the headless Service, by which brokers connect to each other even before they are ready."""
    ports = [_port("replication", REPLICATION_PORT), _port("http", HTTP_PORT), *_listener_ports(cluster)]
    return kube_object(
        "v1",
        "Service",
        cluster,
        brokers_name(cluster.metadata.name),
        patches=[patch_of(cluster.spec.template.brokers_service)],
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(selector(cluster.metadata.name)),
            "ports": ports,
        },
    )


def _bootstrap(cluster: Cluster) -> KubeObject:
    name = cluster.metadata.name
    ports = _listener_ports(cluster) or [_port("replication", REPLICATION_PORT)]
    patches = [patch_of(cluster.spec.template.bootstrap_service)]
    spec = {"selector": dict(selector(name)), "ports": ports}
    return kube_object("v1", "Service", cluster, bootstrap_name(name), patches=patches, spec=spec)


def _bootstrap_outside(cluster: Cluster, listener: Listener) -> KubeObject:
    name = cluster.metadata.name
    spec = {
        "type": SERVICE_TYPES[listener.type],
        "selector": dict(selector(name)),
        "ports": [_port(listener.name, listener.port)],
    }
    patches = [patch_of(listener.template.bootstrap_service)]
    return kube_object("v1", "Service", cluster, f"{bootstrap_name(name)}-{listener.name}", patches=patches, spec=spec)


def _of_broker(cluster: Cluster, listener: Listener, broker_id: int) -> KubeObject:
    """Return the external Service of one broker, which reaches the broker even before it is ready."""
    name = cluster.metadata.name
    spec = {
        "type": SERVICE_TYPES[listener.type],
        "publishNotReadyAddresses": True,
        "selector": {"statefulset.kubernetes.io/pod-name": pod_name(name, broker_id)},
        "ports": [_port(listener.name, listener.port)],
    }
    more = {BROKER_LABEL: str(broker_id), LISTENER_LABEL: listener.name}
    own = (each for each in listener.template.broker_services if each.broker_id == broker_id)
    return kube_object(
        "v1",
        "Service",
        cluster,
        broker_service_name(name, listener.name, broker_id),
        more_labels=more,
        patches=[patch_of(listener.template.broker_service), *map(patch_of, own)],
        spec=spec,
    )


def _listener_ports(cluster: Cluster) -> list[KubeObject]:
    return [_port(each.name, each.port) for each in cluster.spec.listeners if each.type == "internal"]


def _port(name: str, port: int) -> KubeObject:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}


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
