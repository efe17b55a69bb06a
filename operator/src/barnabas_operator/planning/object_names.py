"""The names, labels and annotations of the Kubernetes objects of a Cluster."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal

from barnabas_operator.resources.kind import API_VERSION, Resource, shortened

CLUSTER_LABEL: Final = "barnabas.dev/cluster"
BROKER_LABEL: Final = "barnabas.dev/broker-id"
LISTENER_LABEL: Final = "barnabas.dev/listener"
GIVEN: Final = "barnabas.dev/given-addresses"
"""The StatefulSet's annotation with the external addresses that the brokers advertise."""
STALE: Final = "barnabas.dev/stale-address"
"""The annotation of a pod whose broker advertises an outdated address."""
ACCOUNT: Final = "barnabas.dev/service-account-uid"
"""The annotation of a pod with the uid of its ServiceAccount.

If the ServiceAccount is recreated, it has another uid, and the pod's token is invalid.
"""
SECURITY_STAGE: Final = "barnabas.dev/security-stage"
RESTART: Final = "barnabas.dev/restart"
"""The annotation of a Cluster that requests a restart of all brokers; each new value is a new request."""
"""The annotation of pods with the broker's `securityStage`, absent in a Cluster without security."""
EMPTIED_LABEL: Final = "barnabas.dev/emptied"
"""The label that marks the PersistentVolumeClaims of a broker that held no replicas when it was removed."""
NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "barnabas-operator"
OPERATOR_NAME: Final = "barnabas-operator"
FIELD_MANAGER: Final = "barnabas-operator"
REPLICATION_PORT: Final = 9091
PASSING_PORT: Final = 9090
"""The port for TLS between brokers while port 9091 still accepts plaintext."""
HTTP_PORT: Final = 9404
LAG_EXPORTER_PORT: Final = 9308
"""The metrics port of the lag exporter; kafka_exporter uses the same port."""

MAINTENANCE_JOB_LABEL: Final = "barnabas.dev/maintenance-job"
MAINTENANCE_CLUSTER_LABEL: Final = "barnabas.dev/maintenance-cluster"
"""The label, on the objects of a MaintenanceJob, with the name of the Cluster.

`CLUSTER_LABEL` is not used, because each change to an object with that label causes a reconciliation of the Cluster.
"""
MAINTENANCE_ROLE_LABEL: Final = "barnabas.dev/maintenance-role"
SCHEDULE_LABEL: Final = "barnabas.dev/schedule"
"""The label, on a CronJob and its MaintenanceJobs, with the name of their entry in `spec.maintenance`."""
SCHEDULE_LENGTH_MAX: Final = 45
"""The maximum length of a CronJob's name, to which Jobs add a number and drivers add `-driver`."""
DIGEST_BYTES: Final = 4


def brokers_name(cluster: str) -> str:
    """Return the name of the brokers' StatefulSet.

    The ServiceAccount, the headless Service and the PodDisruptionBudget of the brokers have the same name.
    """
    return f"{cluster}-broker"


def lag_exporter_name(cluster: str) -> str:
    """Return the name of the Deployment that exports the lag of groups, and of its PodMonitor."""
    return f"{cluster}-lag-exporter"


def service_host(service: str, namespace: str | None) -> str:
    """Return the DNS name of a Service within the Kubernetes cluster."""
    return f"{service}.{namespace or 'default'}.svc"


def settings_name(cluster: str, revision: str) -> str:
    """Return the name of the ConfigMap with the brokers' files; `revision` is the `restart_hash` of their settings."""
    return f"{brokers_name(cluster)}-{revision}"


def cluster_authority_name(cluster: str) -> str:
    """Return the name of the Secret with the key that signs the certificates of brokers and of the operator."""
    return f"{cluster}-cluster-ca"


def clients_authority_name(cluster: str) -> str:
    """Return the name of the Secret with the key that signs the certificates of users."""
    return f"{cluster}-clients-ca"


def certificate_name(authority: str) -> str:
    """Return the name of the Secret from which clients read the CA certificates to trust."""
    return f"{authority}-cert"


def broker_certificates_name(cluster: str) -> str:
    """Return the name of the Secret with the certificate of the brokers and the authorities that they trust."""
    return f"{brokers_name(cluster)}-certificates"


def operator_certificate_name(cluster: str) -> str:
    """Return the common name of the operator's client certificate, which is also the name of its Secret."""
    return f"{cluster}-operator"


def administrator_name(cluster: str) -> str:
    """Return the name of the Secret with the credentials and the `client.properties` of the user `admin`."""
    return f"{cluster}-admin"


def credentials_access_name(cluster: str) -> str:
    """Return the name of the Role and RoleBinding for the Secrets with the credentials of users."""
    return f"{brokers_name(cluster)}-credentials"


def bootstrap_name(cluster: str) -> str:
    """Return the name of the bootstrap Service, which routes to any broker."""
    return f"{cluster}-bootstrap"


def pod_name(cluster: str, broker_id: int) -> str:
    """Return the name of the broker's pod, whose number in the StatefulSet is the broker id."""
    return f"{brokers_name(cluster)}-{broker_id}"


def broker_of(pod: str, cluster: str) -> int | None:
    """Return the id of the broker with this pod name, or None if the pod is no broker of the Cluster."""
    number = pod.removeprefix(f"{brokers_name(cluster)}-")
    return int(number) if number.isdecimal() and pod == pod_name(cluster, int(number)) else None


def broker_service_name(cluster: str, listener: str, broker_id: int) -> str:
    """Return the name of the Service through which external clients reach one broker."""
    return f"{pod_name(cluster, broker_id)}-{listener}"


def claim_name(volume_id: int) -> str:
    """Return the name of the claim template of a disk; each pod's claim is named `<template>-<pod>`."""
    return f"volume-{volume_id}"


def disk_of(claim: str, cluster: str) -> tuple[int, int] | None:
    """Return the volume id and the broker id of a claim, or None if the name is not that of a broker's claim."""
    template, _, number = claim.partition(f"-{brokers_name(cluster)}-")
    volume = template.removeprefix("volume-")
    if not (number.isdecimal() and volume.isdecimal() and template == claim_name(int(volume))):
        return None
    return int(volume), int(number)


def pod_host(cluster: str, namespace: str, broker_id: int) -> str:
    """Return the DNS name of a broker's pod, without the cluster domain, which resolv.conf adds."""
    return f"{pod_name(cluster, broker_id)}.{brokers_name(cluster)}.{namespace}.svc"


def selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that select only the pods of the brokers.

    A StatefulSet copies these labels to its claims, which have no owner. The label `app.kubernetes.io/instance` must
    not be among them, because Argo CD tracks objects by this label and would prune the claims.
    """
    return {NAME_LABEL: "barnabas-broker", CLUSTER_LABEL: cluster}


def lag_exporter_selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that select only the pod of the lag exporter."""
    return {NAME_LABEL: "barnabas-lag-exporter", CLUSTER_LABEL: cluster}


def labels(cluster: str) -> Mapping[str, str]:
    """Return the labels that a Cluster's objects have by default."""
    return {**selector(cluster), "app.kubernetes.io/instance": cluster, MANAGED_BY_LABEL: MANAGED_BY}


def driver_name(run: str) -> str:
    """Return the name of a driver's Job, and of the Service through which executors connect to the driver."""
    return f"{run}-driver"


def application_name(run: str) -> str:
    """Return the name of the SparkApplication that Kubeflow's Spark operator runs for a MaintenanceJob."""
    return run


def maintenance_name(cluster: str) -> str:
    """Return the name of the ServiceAccount and RoleBinding of a Cluster's drivers and executors."""
    return f"{cluster}-maintenance"


def maintenance_selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that select the pods of the MaintenanceJobs of a Cluster."""
    return {NAME_LABEL: "barnabas-maintenance", MAINTENANCE_CLUSTER_LABEL: cluster}


def run_labels(cluster: str, run: str, role: str) -> Mapping[str, str]:
    """Return the labels of a pod of a MaintenanceJob; `role` is driver or executor."""
    return {**labels_of_run(cluster, run), MAINTENANCE_ROLE_LABEL: role}


def labels_of_run(cluster: str, run: str) -> Mapping[str, str]:
    """Return the labels that driver and executors of a run share."""
    return {**maintenance_selector(cluster), MAINTENANCE_JOB_LABEL: run}


def starter_name(cluster: str) -> str:
    """Return the name of the ServiceAccount and RoleBinding of the pods that CronJobs start."""
    return f"{cluster}-maintenance-start"


def schedule_name(cluster: str, entry: str) -> str:
    """Return the name of the CronJob for an entry of `spec.maintenance`."""
    return shortened_name(f"{cluster}-{entry}", SCHEDULE_LENGTH_MAX)


def shortened_name(name: str, length_max: int) -> str:
    """Return the name; above `length_max` characters, its beginning and a digest of the full name, to stay distinct."""
    if len(name) <= length_max:
        return name
    digest = blake2b(name.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: length_max - len(digest) - 1].rstrip('-')}-{digest}"


MESSAGE_LENGTH_MAX: Final = 1_024
"""The longest message that the newer API of Events allows (KEP-383)."""

EventType = Literal["Normal", "Warning"]
EventText = tuple[EventType, str, str]
"""The type, the reason and the message of an Event."""


def kube_event(about: Resource, kind: EventType, reason: str, message: str, now: str) -> dict[str, Any]:
    """Return an Event as JSON; `now` is in RFC 3339. Messages above `MESSAGE_LENGTH_MAX` are shortened."""
    namespace = about.metadata.namespace or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.metadata.name}-", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": about.kind,
            "namespace": namespace,
            "name": about.metadata.name,
            "uid": about.metadata.uid,
        },
        "type": kind,
        "reason": reason,
        "message": shortened(message, MESSAGE_LENGTH_MAX),
        "source": {"component": OPERATOR_NAME},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


VOLUME: Final = "barnabas-client"
FOLDER: Final = "/etc/barnabas-client"
AUTHORITIES: Final = "ca.crt"
KEYSTORE: Final = "client.pem"
SETTINGS: Final = "client.properties"
SETTINGS_PATH: Final = f"{FOLDER}/{SETTINGS}"
CLIENT_PROPERTIES: Final[Mapping[str, str]] = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": f"{FOLDER}/{AUTHORITIES}",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": f"{FOLDER}/{KEYSTORE}",
}
"""The Kafka client properties for a pod that mounts the Secret at `FOLDER`."""
