"""The names of a Cluster's objects, and the labels that find them again."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

CLUSTER_LABEL: Final = "barnabas.dev/cluster"
BROKER_LABEL: Final = "barnabas.dev/broker-id"
LISTENER_LABEL: Final = "barnabas.dev/listener"
GIVEN: Final = "barnabas.dev/given-addresses"
"""The annotation of the StatefulSet with the outside addresses that its brokers advertise."""
STALE: Final = "barnabas.dev/stale-address"
"""The annotation of a pod whose broker advertises an outdated address."""
ACCOUNT: Final = "barnabas.dev/service-account-uid"
"""The annotation of pods with their ServiceAccount's uid: a new one of that name makes their token void."""
SECURITY_STAGE: Final = "barnabas.dev/security-stage"
"""The annotation of pods with the stage of the brokers' security; those of an open Cluster have none."""
EMPTIED_LABEL: Final = "barnabas.dev/emptied"
"""The label of the claims of a broker that held nothing when it was removed."""
NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "barnabas-operator"
OPERATOR_NAME: Final = "barnabas-operator"
FIELD_MANAGER: Final = "barnabas-operator"
REPLICATION_PORT: Final = 9091
PASSING_PORT: Final = 9090
"""The port with certificates between brokers while 9091 is in clear."""
HTTP_PORT: Final = 9404
LAG_EXPORTER_PORT: Final = 9308
"""The port of kafka_exporter."""

MAINTENANCE_JOB_LABEL: Final = "barnabas.dev/maintenance-job"
MAINTENANCE_CLUSTER_LABEL: Final = "barnabas.dev/maintenance-cluster"
"""The label of a run's objects. A change of an object with the Cluster's own label starts a round over the Cluster."""
MAINTENANCE_ROLE_LABEL: Final = "barnabas.dev/maintenance-role"
SCHEDULE_LABEL: Final = "barnabas.dev/schedule"
"""The label of a CronJob and of its MaintenanceJobs: the name of the entry in the Cluster."""
SCHEDULE_LENGTH_MAX: Final = 45
"""The limit of a CronJob's name: its Jobs and their MaintenanceJobs add a number, and `-driver` after that."""
DIGEST_BYTES: Final = 4


def brokers_name(cluster: str) -> str:
    """The StatefulSet, its ServiceAccount, RoleBinding, PodDisruptionBudget and headless Service."""
    return f"{cluster}-broker"


def lag_exporter_name(cluster: str) -> str:
    """Return the name of the Deployment that exports the lag of groups, and of its PodMonitor."""
    return f"{cluster}-lag-exporter"


def settings_name(cluster: str, revision: str) -> str:
    """The ConfigMap with the brokers' files, one for each `revision` of their settings (`restart_hash`)."""
    return f"{brokers_name(cluster)}-{revision}"


def cluster_authority_name(cluster: str) -> str:
    """Return the name of the Secret with the key that signs the certificates of brokers and of the operator."""
    return f"{cluster}-cluster-ca"


def clients_authority_name(cluster: str) -> str:
    """Return the name of the Secret with the key that signs the certificates of users."""
    return f"{cluster}-clients-ca"


def certificate_name(authority: str) -> str:
    """Return the name of the Secret with the certificates of an authority: all that is to be trusted."""
    return f"{authority}-cert"


def broker_certificates_name(cluster: str) -> str:
    """Return the name of the Secret with the certificate of the brokers and the authorities that they trust."""
    return f"{brokers_name(cluster)}-certificates"


def operator_certificate_name(cluster: str) -> str:
    """Return the name of the Secret with which the operator connects to the brokers, and of its certificate."""
    return f"{cluster}-operator"


def administrator_name(cluster: str) -> str:
    """Return the name of the Secret with all that the user `admin` needs."""
    return f"{cluster}-admin"


def credentials_access_name(cluster: str) -> str:
    """Return the name of the Role and RoleBinding for the Secrets with the credentials of users."""
    return f"{brokers_name(cluster)}-credentials"


def bootstrap_name(cluster: str) -> str:
    """The Service that any broker answers at."""
    return f"{cluster}-bootstrap"


def pod_name(cluster: str, broker_id: int) -> str:
    """The broker's pod: brokers are numbered from 0, as a StatefulSet numbers its pods."""
    return f"{brokers_name(cluster)}-{broker_id}"


def broker_of(pod: str, cluster: str) -> int | None:
    """Return the id of the broker whose pod has this name; None if there is none, as for a copy for debugging."""
    number = pod.removeprefix(f"{brokers_name(cluster)}-")
    return int(number) if number.isdecimal() and pod == pod_name(cluster, int(number)) else None


def broker_service_name(cluster: str, listener: str, broker_id: int) -> str:
    """The Service through which clients from outside reach one broker."""
    return f"{pod_name(cluster, broker_id)}-{listener}"


def claim_name(volume_id: int) -> str:
    """The claim template of a disk; the claim itself is `<this>-<pod>`."""
    return f"volume-{volume_id}"


def disk_of(claim: str, cluster: str) -> tuple[int, int] | None:
    """Return the volume and the broker of a claim; None if it is not of this cluster."""
    template, _, number = claim.partition(f"-{brokers_name(cluster)}-")
    volume = template.removeprefix("volume-")
    if not (number.isdecimal() and volume.isdecimal() and template == claim_name(int(volume))):
        return None
    return int(volume), int(number)


def pod_host(cluster: str, namespace: str, broker_id: int) -> str:
    """The broker's name inside the Kubernetes cluster; the suffix of the cluster's domain is left to resolv.conf."""
    return f"{pod_name(cluster, broker_id)}.{brokers_name(cluster)}.{namespace}.svc"


def selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that find the brokers' pods, and nothing else.

    A StatefulSet copies these labels to its claims, which nobody owns. So none may be one that deployment tools track
    their objects by: Argo CD takes `app.kubernetes.io/instance`, and would prune the claims.
    """
    return {NAME_LABEL: "barnabas-broker", CLUSTER_LABEL: cluster}


def lag_exporter_selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that find the lag exporter's pod, and no broker's."""
    return {NAME_LABEL: "barnabas-lag-exporter", CLUSTER_LABEL: cluster}


def labels(cluster: str) -> Mapping[str, str]:
    """Return the labels of every object of a Cluster."""
    return {**selector(cluster), "app.kubernetes.io/instance": cluster, MANAGED_BY_LABEL: MANAGED_BY}


def driver_name(run: str) -> str:
    """The batch Job of a MaintenanceJob's driver, and the Service by which executors find it."""
    return f"{run}-driver"


def application_name(run: str) -> str:
    """The SparkApplication of a MaintenanceJob that Kubeflow's Spark operator runs."""
    return run


def maintenance_name(cluster: str) -> str:
    """Return the name of the ServiceAccount and RoleBinding of the drivers and executors of a Cluster's runs."""
    return f"{cluster}-maintenance"


def maintenance_selector(cluster: str) -> Mapping[str, str]:
    """Return the labels that find the pods of a Cluster's runs."""
    return {NAME_LABEL: "barnabas-maintenance", MAINTENANCE_CLUSTER_LABEL: cluster}


def run_labels(cluster: str, run: str, role: str) -> Mapping[str, str]:
    """Return the labels of a pod of a run; `role` is driver or executor."""
    return {**maintenance_selector(cluster), MAINTENANCE_JOB_LABEL: run, MAINTENANCE_ROLE_LABEL: role}


def starter_name(cluster: str) -> str:
    """Return the name of the ServiceAccount and RoleBinding of the pods of schedules."""
    return f"{cluster}-maintenance-start"


def schedule_name(cluster: str, entry: str) -> str:
    """The CronJob of an entry of the Cluster's maintenance."""
    return shortened_name(f"{cluster}-{entry}", SCHEDULE_LENGTH_MAX)


def shortened_name(name: str, length_max: int) -> str:
    """Return the name, shortened if too long, with a digest of the whole, so that two names never become one."""
    if len(name) <= length_max:
        return name
    digest = blake2b(name.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: length_max - len(digest) - 1].rstrip('-')}-{digest}"
