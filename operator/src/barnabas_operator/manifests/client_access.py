"""The bootstrap address and the client credentials with which pods connect to the brokers of their Cluster."""

from typing import Final, NamedTuple

from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.restricted import FOR_ITS_GROUP
from barnabas_operator.planning.brokers.security_stages import is_reached_by_tls, ports_between_brokers
from barnabas_operator.planning.mounted_client import FOLDER, SETTINGS_PATH, VOLUME
from barnabas_operator.planning.object_names import brokers_name, service_host
from barnabas_operator.resources.cluster import Cluster

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
