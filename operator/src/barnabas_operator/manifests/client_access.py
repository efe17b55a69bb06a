"""The way of pods to the brokers of their Cluster: an address, and where it is secured the files that open it."""

from typing import Final, NamedTuple

from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.restricted import FOR_ITS_GROUP
from barnabas_operator.planning.brokers.security_stages import is_reached_by_tls, ports_between_brokers
from barnabas_operator.planning.mounted_client import FOLDER, SETTINGS_PATH, VOLUME
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.resources.cluster import Cluster

_MOUNT: Final[KubeObject] = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


class ClientAccess(NamedTuple):
    """The address of the brokers, and the name of the Secret with the client's files; none where they are open."""

    bootstrap: str
    secret: str = ""

    @property
    def options(self) -> list[str]:
        """Return the options of our own commands that name the files."""
        return [f"--command-config={SETTINGS_PATH}"] if self.secret else []

    @property
    def volumes(self) -> list[KubeObject]:
        """Return the volume, for pods with an fsGroup."""
        source = {"secretName": self.secret, "defaultMode": FOR_ITS_GROUP}
        return [{"name": VOLUME, "secret": source}] if self.secret else []

    @property
    def mounts(self) -> list[KubeObject]:
        """Return its mount, as a whole and never by subPath: so the kubelet brings what is renewed."""
        return [_MOUNT] if self.secret else []


def client_access(cluster: Cluster, secret: str) -> ClientAccess:
    """Return the way in where brokers replicate, as the operator's: it is there whatever listeners are declared."""
    host = f"{brokers_name(cluster.metadata.name)}.{cluster.metadata.namespace or 'default'}.svc"
    bootstrap = ",".join(f"{host}:{port}" for port in ports_between_brokers(cluster))
    return ClientAccess(bootstrap, secret if is_reached_by_tls(cluster) else "")
