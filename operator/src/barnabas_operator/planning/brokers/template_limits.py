"""The fields that a template may not change, each with the reason: the operator relies on it, or a field sets it."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.planning.object_names import HTTP_PORT, LAG_EXPORTER_PORT, REPLICATION_PORT

Steps = tuple[str, ...]
"""Fields, and the keys of entries of keyed lists (`9092,TCP`); as a pattern, `*` stands for anything."""

RIGHTS: Final = "with which the brokers access the Kubernetes API"
SELECTOR: Final = "which finds the brokers' pods"
BY_LISTENER: Final = "which spec.listeners sets"

STATEFUL_SET: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "which spec.brokers.replicas sets",
    ("spec", "template"): "which spec.template.pod and spec.template.brokerContainer change",
    ("spec", "volumeClaimTemplates"): "which spec.storage sets",
    ("spec", "selector"): SELECTOR,
    ("spec", "serviceName"): "by which brokers find each other",
    ("spec", "podManagementPolicy"): "because all brokers start at the same time",
    ("spec", "updateStrategy"): "because only the operator restarts brokers",
    ("spec", "ordinals"): "because brokers are numbered from 0",
    ("spec", "persistentVolumeClaimRetentionPolicy"): "which deletionPolicy and deleteClaim set",
}
POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "broker"): "which spec.template.brokerContainer changes",
    ("spec", "initContainers", "broker"): "which is the name of the brokers' container",
    ("spec", "volumes", "config"): "which has the brokers' settings",
    ("spec", "volumes", "access"): RIGHTS,
    ("spec", "volumes", "barnabas-certificates"): "which has the brokers' certificates",
    ("spec", "volumes", "volume-*"): "which spec.storage sets",
    ("spec", "serviceAccountName"): RIGHTS,
    ("spec", "serviceAccount"): RIGHTS,
    ("spec", "hostname"): "by which brokers find each other",
    ("spec", "subdomain"): "by which brokers find each other",
    ("spec", "nodeName"): "because all brokers would be on one node; allowed: nodeSelector or affinity",
    ("spec", "restartPolicy"): "because a broker that ends is started again",
}
CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "by which the operator finds it",
    ("image",): "which spec.brokers.image sets",
    ("resources",): "which spec.brokers.resources sets",
    ("command",): "by which the operator starts brokers",
    ("args",): "by which the operator starts brokers",
    **{("env", name): "from which the broker learns about its pod" for name in ("POD_NAME", "POD_UID", "HOST_IP")},
    ("volumeMounts", "/etc/barnabas*"): "which has the brokers' settings",
    ("volumeMounts", "/var/lib/barnabas*"): "which has the brokers' disks",
    ("volumeMounts", "/var/run/secrets/kubernetes.io/serviceaccount*"): RIGHTS,
    **{
        (f"{probe}Probe", "httpGet"): "because it shows the broker's state"
        for probe in ("startup", "liveness", "readiness")
    },
    ("ports", f"{REPLICATION_PORT},*"): "by which brokers replicate",
    ("ports", f"{HTTP_PORT},*"): "by which brokers report their state",
}
SERVICE: Final[Mapping[Steps, str]] = {
    ("spec", "selector"): SELECTOR,
    ("spec", "type"): BY_LISTENER,
    ("spec", "publishNotReadyAddresses"): "because clients need the address of a broker that is not ready yet",
    **{("spec", "ports", "*", field): BY_LISTENER for field in ("name", "targetPort")},
}
HEADLESS: Final[Mapping[Steps, str]] = {
    **SERVICE,
    ("spec", "clusterIP"): "because it gives each broker a DNS name",
    ("spec", "clusterIPs"): "because it gives each broker a DNS name",
    ("spec", "ports"): BY_LISTENER,
}
SELECTING: Final[Mapping[Steps, str]] = {("spec", "selector"): SELECTOR}
NETWORK_POLICY: Final[Mapping[Steps, str]] = {
    ("spec", "podSelector"): SELECTOR,
    ("spec", "ingress"): "which spec.listeners[].networkPolicyPeers sets",
}
BY_EXPORTER: Final = "which finds the lag exporter's pod"
DEPLOYMENT: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "because two would export every series twice",
    ("spec", "selector"): BY_EXPORTER,
    ("spec", "strategy"): "because two would export every series twice",
    ("spec", "template"): "which template.pod and template.container change",
}
EXPORTER_POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "lag-exporter"): "which template.container changes",
    ("spec", "restartPolicy"): "because an exporter that ends is started again",
}
EXPORTER_CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "by which the operator finds it",
    ("image",): "which spec.lagExporter.image sets",
    ("resources",): "which spec.lagExporter.resources sets",
    ("command",): "by which the operator starts it",
    ("args",): "by which the operator starts it",
    ("ports", f"{LAG_EXPORTER_PORT},*"): "which Prometheus reads",
}
EXPORTER_MONITOR: Final[Mapping[Steps, str]] = {("spec", "selector"): BY_EXPORTER}
