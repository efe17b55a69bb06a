"""The addresses that Kubernetes assigned to the Services of external listeners, and their changes.

A broker advertises the address that it had at its start, and clients keep the address. So a Service that is recreated
asks for its old port; if Kubernetes assigns another port, the brokers that advertise the old port have to restart.
"""

from barnabas_operator.planning.brokers.external_access import WAITING_FOR_ADDRESSES, ExternalAccess
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.object_names import bootstrap_name, broker_service_name
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster, Listener


def given_addresses(cluster: Cluster, external: ExternalAccess) -> dict[str, str]:
    """Return, by the name of the Service, the address that Kubernetes gave each Service of an external listener.

    The address is a node port or the host of a load balancer.
    """
    name, found = cluster.metadata.name, {}
    for listener in cluster.spec.listeners:
        if listener.type == "nodeport" and (port := external.bootstrap_ports.get(listener.name)):
            found[f"{bootstrap_name(name)}-{listener.name}"] = str(port)
        for broker_id in (number for given, number in external.node_ports if given == listener.name):
            if address := _given(listener, broker_id, external):
                found[broker_service_name(name, listener.name, broker_id)] = address
    return found


def _given(listener: Listener, broker_id: int, external: ExternalAccess) -> str:
    key = listener.name, broker_id
    if listener.type == "nodeport":
        return str(external.node_ports.get(key) or "")
    return external.balancer_hosts.get(key, "") if listener.advertised_host is None else ""


def stale_brokers(cluster: Cluster, pods: PodsState) -> dict[int, str]:
    """Return, by broker id, a description of the outdated address that the broker advertises."""
    before = pods.broker_set.given if pods.broker_set is not None else {}
    now, found = given_addresses(cluster, pods.external), {}
    for listener in cluster.spec.listeners:
        for broker_id in pods.pods:
            service = broker_service_name(cluster.metadata.name, listener.name, broker_id)
            was, is_now = before.get(service), now.get(service)
            if None not in (was, is_now) and was != is_now:
                found[broker_id] = (
                    f"still advertises the address {was} for listener {listener.name}, but the address is now {is_now}"
                )
    return found


def stale_addresses(pods: PodsState) -> Refusal | None:
    """Return a refusal that names the pods to restart because of an outdated address, or None if all are up to date."""
    stale = [f"{pod.name} {pod.stale}" for pod in pods.pods.values() if pod.stale]
    return Refusal(WAITING_FOR_ADDRESSES, f"{'; '.join(stale)}; brokers with an old address restart") if stale else None
