"""The operator's credentials for brokers: a client certificate, or none while some brokers may have no TLS listener."""

from base64 import b64decode
from collections.abc import Mapping

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.broker_security import is_reached_by_tls
from barnabas_operator.planning.brokers.pods import is_owned
from barnabas_operator.planning.object_names import operator_certificate_name
from barnabas_operator.reconcile.worker_environment import Identity, Prove
from barnabas_operator.resources.cluster import Cluster


async def broker_access(api: KubeApi, cluster: Cluster, prove: Prove) -> Credentials:
    """Return the operator's current credentials, or IN_CLEAR while some brokers may have no TLS listener.

    Raises ClusterUnreachable if the operator has no valid certificate yet. May also raise KubeUnreachable and
    KubeRefused.
    """
    if not is_reached_by_tls(cluster):
        return IN_CLEAR
    name = operator_certificate_name(cluster.metadata.name)
    found = await api.get("Secret", cluster.metadata.namespace or "default", name)
    if found is None or not is_owned(cluster, found):
        raise ClusterUnreachable(f"the operator's own certificate, in the Secret {name}, does not exist yet")
    data: Mapping[str, str] = found.get("data") or {}
    try:
        return prove(Identity(*(b64decode(data[each]).decode() for each in ("ca.crt", "tls.crt", "tls.key"))))
    except (KeyError, ValueError) as error:
        raise ClusterUnreachable(f"the Secret {name} holds no usable certificate: {error}") from error
