"""The files with which brokers and the lag exporter in pods protect `/metrics`."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.brokers.local_security import is_secured
from barnabas_operator.planning.brokers.pod_security import BROKER_PEM, CERTIFICATES_FOLDER, SECURED_BY
from barnabas_operator.planning.brokers.security_stages import SecurityStage, is_reached_by_tls
from barnabas_operator.planning.mounted_client import FOLDER, KEYSTORE
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.metrics import Metrics
from barnabas_operator.resources.schema_check import Path

TOKEN: Final = "barnabas-metrics-token"
"""The volume that holds the bearer token for `/metrics`."""
TOKEN_FOLDER: Final = "/etc/barnabas-metrics"
TOKEN_FILE: Final = "token"
_TOKEN_PATH: Final = f"{TOKEN_FOLDER}/{TOKEN_FILE}"


def of_brokers(cluster: Cluster, stage: SecurityStage) -> Metrics | None:
    """Return `spec.metrics`, or None if it is missing or the brokers have no certificates yet."""
    return cluster.spec.metrics if stage is not SecurityStage.OPEN else None


def of_exporter(cluster: Cluster) -> Metrics | None:
    """Return `spec.metrics`, or None if it is missing or the lag exporter has no certificate yet."""
    return cluster.spec.metrics if is_reached_by_tls(cluster) else None


def broker_settings(metrics: Metrics | None) -> dict[str, str]:
    """Return a broker's settings that protect `/metrics`, or none if `metrics` is None."""
    if metrics is None:
        return {}
    return {
        "http.ssl.certificate.location": f"{CERTIFICATES_FOLDER}/{BROKER_PEM}",
        "http.bearer.token.location": _TOKEN_PATH,
    }


def exporter_options(metrics: Metrics | None) -> list[str]:
    """Return the lag exporter's options that protect `/metrics`, or none if `metrics` is None."""
    if metrics is None:
        return []
    return [f"--server.tls.cert-file={FOLDER}/{KEYSTORE}", f"--server.token-file={_TOKEN_PATH}"]


def metrics_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield a problem if `spec.metrics` declares a token, but the brokers have no certificates: a token needs TLS."""
    if cluster.spec.metrics is not None and not is_secured(cluster):
        secret = cluster.spec.metrics.token_secret.name
        why = "because without TLS the token would be sent in clear"
        allowed = f"remove spec.metrics, or set any of {SECURED_BY}, {why}"
        message = f"spec.metrics.tokenSecret.name is {secret}, but the brokers have no certificates; {allowed}"
        yield ("spec", "metrics", "tokenSecret", "name"), message
