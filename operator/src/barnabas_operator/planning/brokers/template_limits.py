"""The fields that a template may not change, with the reasons."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.planning.object_names import HTTP_PORT, LAG_EXPORTER_PORT, REPLICATION_PORT

Steps = tuple[str, ...]
"""The path of a field: the names of fields and, for entries of lists, their merge keys, such as `9092,TCP`.

A `*` stands for any text within one name or key.
"""

RIGHTS: Final = "because the brokers need the field to access the Kubernetes API"
SELECTOR: Final = "because the field selects the brokers' pods"
BY_LISTENER: Final = "because spec.listeners sets the field"

STATEFUL_SET: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "because spec.brokers.replicas sets the field",
    ("spec", "template"): "because spec.template.pod and spec.template.brokerContainer change the pod template",
    ("spec", "volumeClaimTemplates"): "because spec.storage sets the volumes",
    ("spec", "selector"): SELECTOR,
    ("spec", "serviceName"): "because brokers find each other by DNS names",
    ("spec", "podManagementPolicy"): "because all brokers must start at the same time",
    ("spec", "updateStrategy"): "because only the operator restarts brokers",
    ("spec", "ordinals"): "because brokers are numbered from 0",
    ("spec", "persistentVolumeClaimRetentionPolicy"): "because deletionPolicy and deleteClaim set the field",
}
POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "broker"): "because spec.template.brokerContainer changes the container",
    ("spec", "initContainers", "broker"): "because the brokers' container has that name",
    ("spec", "volumes", "config"): "because the volume holds the brokers' settings",
    ("spec", "volumes", "access"): RIGHTS,
    ("spec", "volumes", "barnabas-certificates"): "because the volume holds the brokers' certificates",
    ("spec", "volumes", "barnabas-metrics-token"): "because spec.metrics sets the volume",
    ("spec", "volumes", "volume-*"): "because spec.storage sets the volumes",
    ("spec", "serviceAccountName"): RIGHTS,
    ("spec", "serviceAccount"): RIGHTS,
    ("spec", "hostname"): "because brokers find each other by DNS names",
    ("spec", "subdomain"): "because brokers find each other by DNS names",
    ("spec", "nodeName"): "because all brokers would be on one node; set nodeSelector or affinity instead",
    ("spec", "restartPolicy"): "because a broker that ends must start again",
}
CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "because the operator finds the container by its name",
    ("image",): "because spec.brokers.image sets the field",
    ("resources",): "because spec.brokers.resources sets the field",
    ("command",): "because the operator sets the command of brokers",
    ("args",): "because the operator sets the command of brokers",
    **{("env", name): "because the broker reads the variable" for name in ("POD_NAME", "POD_UID", "HOST_IP")},
    ("volumeMounts", "/etc/barnabas*"): "because the brokers' settings are mounted at the path",
    ("volumeMounts", "/var/lib/barnabas*"): "because the brokers' disks are mounted at the path",
    ("volumeMounts", "/var/run/secrets/kubernetes.io/serviceaccount*"): RIGHTS,
    **{
        (f"{probe}Probe", "httpGet"): "because the probe checks the broker's state"
        for probe in ("startup", "liveness", "readiness")
    },
    ("ports", f"{REPLICATION_PORT},*"): "because brokers replicate over the port",
    ("ports", f"{HTTP_PORT},*"): "because brokers report their state on the port",
}
SERVICE: Final[Mapping[Steps, str]] = {
    ("spec", "selector"): SELECTOR,
    ("spec", "type"): BY_LISTENER,
    ("spec", "publishNotReadyAddresses"): "because clients need the address of a broker that is not ready yet",
    **{("spec", "ports", "*", field): BY_LISTENER for field in ("name", "targetPort")},
}
HEADLESS: Final[Mapping[Steps, str]] = {
    **SERVICE,
    ("spec", "clusterIP"): "because the Service gives each broker a DNS name",
    ("spec", "clusterIPs"): "because the Service gives each broker a DNS name",
    ("spec", "ports"): BY_LISTENER,
}
SELECTING: Final[Mapping[Steps, str]] = {("spec", "selector"): SELECTOR}
NETWORK_POLICY: Final[Mapping[Steps, str]] = {
    ("spec", "podSelector"): SELECTOR,
    ("spec", "ingress"): "because spec.listeners[].networkPolicyPeers sets the field",
}
BY_EXPORTER: Final = "because the field selects the lag exporter's pod"
DEPLOYMENT: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "because two exporters would export every series twice",
    ("spec", "selector"): BY_EXPORTER,
    ("spec", "strategy"): "because two exporters would export every series twice",
    ("spec", "template"): "because template.pod and template.container of spec.lagExporter change the pod template",
}
EXPORTER_POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "lag-exporter"): "because spec.lagExporter.template.container changes the container",
    ("spec", "restartPolicy"): "because an exporter that ends must start again",
}
EXPORTER_CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "because the operator finds the container by its name",
    ("image",): "because spec.lagExporter.image sets the field",
    ("resources",): "because spec.lagExporter.resources sets the field",
    ("command",): "because the operator sets the command of the exporter",
    ("args",): "because the operator sets the command of the exporter",
    ("ports", f"{LAG_EXPORTER_PORT},*"): "because Prometheus scrapes the port",
}
EXPORTER_MONITOR: Final[Mapping[Steps, str]] = {("spec", "selector"): BY_EXPORTER}
