"""The dynamic configs of running brokers, and the changes that bring them in line with the Cluster."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.planning.brokers.pod_properties import dynamic_settings
from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState
from barnabas_operator.resources.cluster import Cluster

RACK: Final = "broker.rack"
HOSTS: Final = "advertised.hosts"
THROTTLES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""The throttle configs, which the operator never resets because a user may have set them for a reassignment."""

BrokerConfigs = Mapping[int, Mapping[str, str]]
Settings = Mapping[str, str | None]
"""The settings to change; None resets a setting to its default."""
Changes = dict[int, Settings]


def setting_changes(cluster: Cluster, overrides: BrokerConfigs, places: Mapping[int, Settings]) -> Changes:
    """Return the changes to dynamic configs, by broker.

    `overrides` holds the dynamic configs that are set on each broker, and `places` the rack and the advertised hosts of
    each broker, from `place_settings`. A config that is set but not declared is reset, except the throttle configs,
    `RACK` and `HOSTS`.
    """
    declared = dynamic_settings(cluster)
    changes = {number: _of_broker({**declared, **places.get(number, {})}, found) for number, found in overrides.items()}
    return {broker: change for broker, change in changes.items() if change}


def place_settings(cluster: Cluster, pods: PodsState) -> dict[int, Settings]:
    """Return, by broker id, the settings that depend on the node of the broker's pod: its rack and advertised hosts.

    A setting is left out while its value is unknown.
    """
    old = pods.remaining()  # These brokers have to restart, and may be too old to know `advertised.hosts`.
    return {
        number: {**_rack(cluster, pod), **(_hosts(cluster, pods, pod) if pod.host_ip and number not in old else {})}
        for number, pod in pods.pods.items()
    }


def _rack(cluster: Cluster, pod: BrokerPod) -> Settings:
    return {RACK: pod.rack} if cluster.spec.brokers.rack is not None and pod.rack is not None else {}


def _hosts(cluster: Cluster, pods: PodsState, pod: BrokerPod) -> Settings:
    """Return `advertised.hosts`: the address of the broker's node on each listener that clients reach at a node port.

    The value is None, which resets the config, if all these listeners advertise the pod's host IP.
    """
    hosts = {
        each.name: pods.external.node_hosts[each.name, pod.broker_id]
        for each in cluster.spec.listeners
        if each.is_at_node
    }
    if set(hosts.values()) <= {pod.host_ip}:
        return {HOSTS: None}
    return {HOSTS: ",".join(f"{name.upper()}:{host}" for name, host in hosts.items())}


def _of_broker(wanted: Settings, found: Mapping[str, str]) -> Settings:
    added = {name: text for name, text in wanted.items() if found.get(name) != text}
    gone = (name for name in found if name not in wanted and name not in (*THROTTLES, RACK, HOSTS))
    return {**added, **dict.fromkeys(gone, None)}
