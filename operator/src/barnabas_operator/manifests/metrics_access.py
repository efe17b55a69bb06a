"""The volumes, probes and PodMonitor endpoints of pods that protect `/metrics` by TLS and a bearer token."""

from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.restricted import FOR_ITS_GROUP
from barnabas_operator.planning.brokers.protected_metrics import TOKEN, TOKEN_FILE, TOKEN_FOLDER
from barnabas_operator.planning.object_names import certificate_name, cluster_authority_name, service_host
from barnabas_operator.resources.metrics import Metrics
from barnabas_operator.resources.object_meta import ObjectMeta


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
