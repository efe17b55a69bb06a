"""The values from Kubernetes on which the settings of brokers depend.

These are external addresses, the uid of the ServiceAccount, and the stage of turning security on or off.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from barnabas_operator.planning.brokers.security_stages import SecurityStage, wanted_stage
from barnabas_operator.planning.object_names import bootstrap_name
from barnabas_operator.resources.cluster import Cluster, Listener, NodeAddressType

WAITING_FOR_ADDRESSES: Final = "WaitingForAddresses"
Address = tuple[str, int]
"""A host and a port."""


@dataclass(frozen=True, slots=True)
class ExternalAccess:
    """The external addresses of each broker, by listener and broker id, and other values from Kubernetes.

    `node_ports` are the ports of Services of type NodePort, and `balancer_hosts` the hosts of load balancers.
    `node_hosts` are the addresses of the nodes that run the brokers' pods. `bootstrap_ports` are the node ports of
    bootstrap Services, by listener, and `bootstrap_hosts` all hosts of their load balancers.
    `account_uid` is the uid of the brokers' ServiceAccount, or "" before it exists.
    `stage` is the `SecurityStage` of new pods, or None for the stage that the Cluster declares.
    """

    node_ports: Mapping[tuple[str, int], int] = field(default_factory=dict)
    balancer_hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    node_hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    bootstrap_ports: Mapping[str, int] = field(default_factory=dict)
    bootstrap_hosts: frozenset[str] = frozenset()
    account_uid: str = ""
    stage: SecurityStage | None = None

    def stage_of(self, cluster: Cluster) -> SecurityStage:
        """Return the `SecurityStage` of new pods: `stage`, or the Cluster's declared stage if `stage` is None."""
        return wanted_stage(cluster) if self.stage is None else self.stage

    def advertised(self, listener: Listener, broker_id: int) -> Address | None:
        """Return the address that a broker advertises on an external listener, or None until Kubernetes assigns one.

        An empty host stands for the address of the node, which is known only once the pod is scheduled.
        """
        key = listener.name, broker_id
        if listener.type == "loadbalancer":
            host = listener.advertised_host or self.balancer_hosts.get(key)
            return (host, listener.port) if host else None
        port = self.node_ports.get(key)
        return (listener.advertised_host or "", port) if port else None

    def address_outside(self, listener: Listener, broker_id: int) -> Address | None:
        """Return the address at which external clients reach the broker, or None until Kubernetes assigns one.

        If the broker advertises the address of its node, the host is empty until the pod is scheduled.
        """
        found = self.advertised(listener, broker_id)
        if found is None:
            return None
        return found[0] or self.node_hosts.get((listener.name, broker_id), ""), found[1]

    def lacking(self, cluster: Cluster, places: int = 0) -> list[str]:
        """Return a description of each external address that Kubernetes has not assigned yet.

        All declared brokers need external addresses. Brokers that will be removed also need external addresses if
        their ids are below `places`.
        """
        return [
            f"an address of listener {listener.name} for broker {broker_id}"
            for listener in cluster.spec.listeners
            if listener.type != "internal"
            for broker_id in range(max(places, cluster.spec.brokers.replicas))
            if self.advertised(listener, broker_id) is None
        ]


def is_outside(cluster: Cluster) -> bool:
    """True if the Cluster has a listener for clients outside Kubernetes."""
    return any(each.type != "internal" for each in cluster.spec.listeners)


def node_host(addresses: Mapping[str, str], host_ip: str, preferred: str | None) -> str:
    """Return the node address that a broker advertises: of the preferred type, else of another type, else `host_ip`."""
    order = (preferred, *get_args(NodeAddressType))
    return next((addresses[kind] for kind in order if kind in addresses), host_ip)


def bootstrap_servers(cluster: Cluster, listener: Listener, external: ExternalAccess, reported: str = "") -> str:
    """Return the bootstrap Service of an internal listener, or the addresses of all brokers of an external listener.

    If a broker's pod is not scheduled, the host is unknown. It is then copied from the address with the same port in
    the previous status (`reported`).
    """
    if listener.type == "internal":
        namespace = cluster.metadata.namespace or "default"
        return f"{bootstrap_name(cluster.metadata.name)}.{namespace}.svc:{listener.port}"
    known_hosts = {port: host for host, _, port in (server.rpartition(":") for server in reported.split(","))}
    addresses = (external.address_outside(listener, number) for number in range(cluster.spec.brokers.replicas))
    hosts = ((host or known_hosts.get(str(port)), port) for host, port in filter(None, addresses))
    return ",".join(f"{host}:{port}" for host, port in hosts if host)
