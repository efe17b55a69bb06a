"""Kubernetes objects as JSON: metadata, accounts, protection, probes, peers and client access that several share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, NamedTuple

from barnabas_operator.planning.brokers.broker_security import (
    is_passing,
    is_reached_by_tls,
    ports_between_brokers,
    reported_stage,
)
from barnabas_operator.planning.brokers.pod_properties import TOKEN, TOKEN_FILE, TOKEN_FOLDER, of_brokers
from barnabas_operator.planning.brokers.templates import merged
from barnabas_operator.planning.object_names import (
    FOLDER,
    OPERATOR_NAME,
    PASSING_PORT,
    REPLICATION_PORT,
    SETTINGS_PATH,
    VOLUME,
    brokers_name,
    certificate_name,
    cluster_authority_name,
    labels,
    lag_exporter_selector,
    maintenance_selector,
    selector,
    service_host,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import BROKER_ROLE, RBAC
from barnabas_operator.resources.kind import (
    BrokerServiceTemplate,
    Json,
    MetadataTemplate,
    ObjectMeta,
    Template,
    TemplateMetadata,
)
from barnabas_operator.resources.security import Metrics

AnyTemplate = Template | MetadataTemplate | BrokerServiceTemplate

KubeObject = dict[str, Any]


def kube_object(
    api_version: str,
    kind: str,
    cluster: Cluster,
    name: str,
    *,
    more_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    patches: Sequence[Json] = (),
    **body: Any,
) -> KubeObject:
    """Return an object that the Cluster owns, merged with the Cluster's template metadata and then with `patches`."""
    meta = cluster.metadata
    made: KubeObject = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace or "default",
            "labels": {**labels(meta.name), **(more_labels or {})},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [cluster.owner_reference],
        },
        **body,
    }
    return reduce(merged, (metadata_patch(cluster.spec.template.metadata), *patches), made)


def patch_of(template: AnyTemplate) -> KubeObject:
    """Return the metadata and the spec of a declared template as a patch for an object."""
    spec = {} if isinstance(template, MetadataTemplate) else template.spec
    return metadata_patch(template.metadata) | ({"spec": spec} if spec else {})


def workload_patches(
    cluster: Cluster, workload: AnyTemplate, pod: AnyTemplate, container: Json, name: str
) -> list[Json]:
    """Return the patches for a workload, its pods and their container `name`, from declared templates."""
    pods = [
        metadata_patch(cluster.spec.template.metadata),
        patch_of(pod),
        {"spec": {"containers": [{"name": name, **container}]}},
    ]
    return [patch_of(workload), *({"spec": {"template": each}} for each in pods)]


def metadata_patch(metadata: TemplateMetadata) -> KubeObject:
    """Return labels and annotations as a patch for an object; empty if there are none."""
    found = {name: each for name in ("labels", "annotations") if (each := getattr(metadata, name))}
    return {"metadata": found} if found else {}


USER_ID: Final = 10001
FOR_ITS_GROUP: Final = 0o440
"""The mode of secret files in pods with an fsGroup."""

POD_SECURITY: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


_MOUNT: Final[KubeObject] = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


class ClientAccess(NamedTuple):
    """The bootstrap address of the brokers, and the name of the Secret with the client's credentials.

    `secret` is empty if the brokers are not secured.
    """

    bootstrap: str
    secret: str = ""

    @property
    def options(self) -> list[str]:
        """Return the command-line options that name the client's properties file; an empty list without a Secret."""
        return [f"--command-config={SETTINGS_PATH}"] if self.secret else []

    @property
    def volumes(self) -> list[KubeObject]:
        """Return a list with the volume of the client's credentials; an empty list without a Secret.

        The pod's fsGroup can read the files of the volume.
        """
        source = {"secretName": self.secret, "defaultMode": FOR_ITS_GROUP}
        return [{"name": VOLUME, "secret": source}] if self.secret else []

    @property
    def mounts(self) -> list[KubeObject]:
        """Return a list with the mount of the credentials; an empty list without a Secret.

        The mount has no subPath, so that the kubelet updates renewed files.
        """
        return [_MOUNT] if self.secret else []


def client_access(cluster: Cluster, secret: str) -> ClientAccess:
    """Return the address of the brokers' replication listener, together with `secret` if the listener has TLS."""
    host = service_host(brokers_name(cluster.metadata.name), cluster.metadata.namespace)
    bootstrap = ",".join(f"{host}:{port}" for port in ports_between_brokers(cluster))
    return ClientAccess(bootstrap, secret if is_reached_by_tls(cluster) else "")


def token_volumes(metrics: Metrics | None) -> list[KubeObject]:
    """Return the volume with the bearer token, or an empty list if the metrics are not protected.

    The pod's fsGroup may read the token.
    """
    if metrics is None:
        return []
    ref = metrics.token_secret
    items = [{"key": ref.key, "path": TOKEN_FILE}]
    return [{"name": TOKEN, "secret": {"secretName": ref.name, "defaultMode": FOR_ITS_GROUP, "items": items}}]


def token_mounts(metrics: Metrics | None) -> list[KubeObject]:
    """Return the mount of the bearer token. The mount has no subPath, so that the kubelet updates a changed token."""
    return [] if metrics is None else [{"name": TOKEN, "mountPath": TOKEN_FOLDER, "readOnly": True}]


def probe(metrics: Metrics | None, path: str) -> KubeObject:
    """Return an HTTP probe of `path`, over TLS if the metrics are protected."""
    scheme = {} if metrics is None else {"scheme": "HTTPS"}
    return {"httpGet": {"path": path, "port": "http", **scheme}, "timeoutSeconds": 5}


def metrics_endpoint(metrics: Metrics | None, cluster: ObjectMeta, service: str, relabelings: object) -> KubeObject:
    """Return the endpoint of a PodMonitor.

    Prometheus checks the certificate for the host name of `service`, because certificates name no addresses of pods.
    """
    endpoint: KubeObject = {"port": "http", "path": "/metrics", "relabelings": relabelings}
    if metrics is None:
        return endpoint
    ref, authority = metrics.token_secret, certificate_name(cluster_authority_name(cluster.name))
    host = service_host(service, cluster.namespace)
    return endpoint | {
        "scheme": "https",
        "tlsConfig": {"ca": {"secret": {"name": authority, "key": "ca.crt"}}, "serverName": host},
        "authorization": {"type": "Bearer", "credentials": {"name": ref.name, "key": ref.key}},
    }


def broker_access(cluster: Cluster) -> list[KubeObject]:
    """Return the brokers' ServiceAccount and RoleBinding, with access to the metadata store."""
    patches = [patch_of(cluster.spec.template.service_account)]
    return account_with_role(cluster, brokers_name(cluster.metadata.name), BROKER_ROLE, patches)


def account_with_role(cluster: Cluster, name: str, role: str, patches: Sequence[Json] = ()) -> list[KubeObject]:
    """Return a ServiceAccount, with `patches` merged over it, and its RoleBinding to the ClusterRole `role`."""
    account = kube_object("v1", "ServiceAccount", cluster, name, patches=patches, automountServiceAccountToken=False)
    return [account, role_binding(cluster, name, "ClusterRole", role, name)]


def role_binding(cluster: Cluster, name: str, kind: str, role: str, account: str) -> KubeObject:
    """Return a RoleBinding of a ServiceAccount to a role of this kind, ClusterRole or Role."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": cluster.metadata.namespace or "default"}
    role_ref = {"apiGroup": RBAC, "kind": kind, "name": role}
    return kube_object(f"{RBAC}/v1", "RoleBinding", cluster, name, roleRef=role_ref, subjects=[subject])


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The namespace and Helm release of the operator's pods; both are empty for an operator outside of Kubernetes.

    `monitor_labels` are the labels by which Prometheus selects PodMonitors.
    """

    operator_namespace: str = ""
    release: str = ""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def operator_peers(self) -> list[dict[str, object]]:
        """The NetworkPolicy peers for the operator's pods, selected by namespace and labels."""
        if not self.operator_namespace:
            return []
        labels = {"app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": self.release}
        namespace = {"kubernetes.io/metadata.name": self.operator_namespace}
        return [{"namespaceSelector": {"matchLabels": namespace}, "podSelector": {"matchLabels": labels}}]


NOBODY_ELSE: Final = Neighbours()


MONITORING: Final = "monitoring.coreos.com/v1"


def disruption_budget(cluster: Cluster) -> KubeObject:
    """Return the PodDisruptionBudget, which allows one broker to be unavailable.

    A broker is ready when its replicas are in sync. A broker that is not ready may be evicted only while all other
    brokers are ready, because it may have the only copy of a record. A single broker may always be evicted, because
    otherwise it could never be restarted.
    """
    name, is_single = cluster.metadata.name, cluster.spec.brokers.replicas == 1
    return kube_object(
        "policy/v1",
        "PodDisruptionBudget",
        cluster,
        brokers_name(name),
        patches=[patch_of(cluster.spec.template.pod_disruption_budget)],
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector(name))},
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if is_single else "IfHealthyBudget",
        },
    )


def network_policy(cluster: Cluster, neighbours: Neighbours) -> KubeObject:
    """Return the NetworkPolicy. Only brokers, operator, lag exporter and maintenance runs reach the replication port.

    Everybody reaches the metrics port, and the ports of listeners without `networkPolicyPeers`.
    """
    name = cluster.metadata.name
    brokers = {"podSelector": {"matchLabels": dict(selector(name))}}
    runs = {"podSelector": {"matchLabels": dict(maintenance_selector(name))}}
    ports = (REPLICATION_PORT, PASSING_PORT) if is_passing(cluster) else (REPLICATION_PORT,)
    return kube_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        cluster,
        brokers_name(name),
        patches=[patch_of(cluster.spec.template.network_policy)],
        spec={
            "podSelector": brokers["podSelector"],
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [brokers, runs, *_exporter_peers(cluster), *neighbours.operator_peers],
                    "ports": [{"port": port, "protocol": "TCP"} for port in ports],
                },
                *_of_clients(cluster),
            ],
        },
    )


def _exporter_peers(cluster: Cluster) -> list[KubeObject]:
    if cluster.spec.lag_exporter is None:
        return []
    return [{"podSelector": {"matchLabels": dict(lag_exporter_selector(cluster.metadata.name))}}]


def _of_clients(cluster: Cluster) -> list[KubeObject]:
    listeners = cluster.spec.listeners
    open_ports: list[int | str] = [each.port for each in listeners if not each.network_policy_peers]
    guarded = [each for each in listeners if each.network_policy_peers]
    return [
        {"ports": [{"port": port, "protocol": "TCP"} for port in (*open_ports, "http")]},
        *(
            {"from": list(each.network_policy_peers), "ports": [{"port": each.port, "protocol": "TCP"}]}
            for each in guarded
        ),
    ]


def _labels_of_series(cluster: str) -> list[dict[str, object]]:
    """Return the relabelings that add the labels `cluster` and `broker` to every series."""
    pod = "__meta_kubernetes_pod_name"
    return [
        {"targetLabel": "cluster", "replacement": cluster},
        {"sourceLabels": [pod], "regex": ".+-([0-9]+)", "targetLabel": "broker"},
    ]


def pod_monitor(cluster: Cluster, neighbours: Neighbours) -> KubeObject:
    """Return the PodMonitor of the brokers, which needs the Prometheus operator's CRD."""
    name = cluster.metadata.name
    metrics, relabelings = of_brokers(cluster, reported_stage(cluster)), _labels_of_series(name)
    return kube_object(
        MONITORING,
        "PodMonitor",
        cluster,
        brokers_name(name),
        more_labels=neighbours.monitor_labels,
        patches=[patch_of(cluster.spec.template.pod_monitor)],
        spec={
            "selector": {"matchLabels": dict(selector(name))},
            "podMetricsEndpoints": [metrics_endpoint(metrics, cluster.metadata, brokers_name(name), relabelings)],
        },
    )
