"""Clusters of three brokers with TLS for clients and each other; only the bench itself connects in plaintext."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.clusters import BROKERS, CLUSTER_KINDS, Cluster, ClusterKind
from bench.secured_broker import WayIn, listener, tls_settings
from harness.certificates import Authority
from harness.server_process import HERE, free_port


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    """`cluster` serves PLAINTEXT to the bench itself, and SSL at `bootstrap`."""

    cluster: Cluster
    bootstrap: str
    authority: Path

    def start(self) -> None:
        """Start the brokers; return when they know each other."""
        self.cluster.start()

    def close(self) -> None:
        """Stop the brokers."""
        self.cluster.close()


def _prepare(kind: ClusterKind, folder: Path) -> SecuredCluster:
    authority, ports = Authority(folder / "authority"), [free_port() for _ in range(BROKERS)]
    settings = {**tls_settings(authority), "security.inter.broker.protocol": "SSL"}
    cluster = kind.prepare(folder, settings, [listener(WayIn.SSL, port) for port in ports])
    return SecuredCluster(cluster, ",".join(f"{HERE.host}:{port}" for port in ports), authority.file)


SECURED_CLUSTER_KINDS: Final[Mapping[str, Callable[[Path], SecuredCluster]]] = {
    name: partial(_prepare, kind) for name, kind in CLUSTER_KINDS.items()
}
