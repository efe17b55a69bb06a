"""What only a running Kubernetes can tell about a Cluster, and its brokers' settings need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_operator.resources.cluster import Cluster, Listener

WAITING_FOR_ADDRESSES: Final = "WaitingForAddresses"
Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Where clients from outside reach each broker, by listener and broker id, and a node's address.

    `node_ports` are those of the brokers' Services of type NodePort, `balancer_hosts` what their load balancers are
    known by.
    """

    node_ports: Mapping[tuple[str, int], int] = field(default_factory=dict)
    balancer_hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    node_address: str | None = None

    def address_outside(self, listener: Listener, broker_id: int) -> Address | None:
        """What a broker tells clients of a listener for the outside; None while Kubernetes has not given it one."""
        if listener.type == "loadbalancer":
            host = listener.advertised_host or self.balancer_hosts.get((listener.name, broker_id))
            return (host, listener.port) if host else None
        node_host, port = listener.advertised_host or self.node_address, self.node_ports.get((listener.name, broker_id))
        return (node_host, port) if node_host and port else None

    def lacking(self, cluster: Cluster) -> list[str]:
        """The addresses that brokers cannot start without, in words."""
        return [
            f"an address of listener {listener.name} for broker {broker_id}"
            for listener in cluster.spec.listeners
            if listener.type != "internal"
            for broker_id in range(cluster.spec.brokers.replicas)
            if self.address_outside(listener, broker_id) is None
        ]


def is_outside(cluster: Cluster) -> bool:
    """Whether clients from outside have Services to come by."""
    return any(each.type != "internal" for each in cluster.spec.listeners)


def takes_node_address(cluster: Cluster) -> bool:
    """Whether brokers tell clients the address of a node."""
    return any(each.type == "nodeport" and not each.advertised_host for each in cluster.spec.listeners)
