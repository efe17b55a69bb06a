"""The settings that running brokers take over: what each has by itself against what is declared."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.planning.pod_properties import dynamic_settings
from barnabas_operator.resources.cluster import Cluster

RACK: Final = "broker.rack"
THROTTLES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Those are whose who moves replicas by hand."""

Overrides = Mapping[int, Mapping[str, str]]
Changes = dict[int, dict[str, str | None]]


def setting_changes(cluster: Cluster, overrides: Overrides, racks: Mapping[int, str | None]) -> Changes:
    """By broker, what to set and (None) what goes back to its default.

    `overrides` are the settings that are set on each broker alone, `racks` where its pod is, for those where it is
    known. Settings that others have set go, as a topic's do.
    """
    changes = {broker: _of_broker(_wanted(cluster, racks.get(broker)), found) for broker, found in overrides.items()}
    return {broker: change for broker, change in changes.items() if change}


def _wanted(cluster: Cluster, rack: str | None) -> dict[str, str]:
    settings = dynamic_settings(cluster)
    return {**settings, RACK: rack} if cluster.spec.brokers.rack is not None and rack is not None else settings


def _of_broker(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str | None]:
    added: dict[str, str | None] = {name: text for name, text in wanted.items() if found.get(name) != text}
    gone = (name for name in found if name not in wanted and name not in (*THROTTLES, RACK))
    return {**added, **dict.fromkeys(gone, None)}
