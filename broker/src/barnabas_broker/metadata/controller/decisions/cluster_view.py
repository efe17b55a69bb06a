"""The state of the cluster from which requests to change topics and configs are decided."""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas_broker.metadata.model import BrokerRegistration, TopicDocument
from barnabas_core.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of the cluster at one moment.

    `live_brokers` excludes brokers that are fenced or shutting down. `config` is the config of this broker.
    `overrides` has the dynamic configs of each broker by its id as text, and the defaults of all brokers under
    ALL_BROKERS.
    """

    topics: Mapping[str, TopicDocument]
    racks: Mapping[int, str | None]
    live_brokers: tuple[int, ...]
    config: BrokerConfig
    overrides: Mapping[str, Mapping[str, str]]


def view_cluster(
    topics: Mapping[str, TopicDocument],
    brokers: Mapping[int, BrokerRegistration],
    config: BrokerConfig,
    overrides: Mapping[str, Mapping[str, str]],
) -> ClusterView:
    """Return the view of the cluster; brokers that are fenced or shutting down do not count as alive."""
    live = [broker for broker, found in brokers.items() if not found.fenced and not found.is_shutting_down]
    return ClusterView(
        topics=topics,
        racks={broker: registration.rack for broker, registration in sorted(brokers.items())},
        live_brokers=tuple(sorted(live)),
        config=config,
        overrides=overrides,
    )
