"""How many replicas the brokers' own topics shall have: nobody declares them, so they follow their Cluster. Pure."""

from collections.abc import Mapping
from typing import Final

from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas_operator.planning.brokers.server_properties import internal_replicas
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.resources.cluster import Cluster

_FACTORS: Final[Mapping[str, str]] = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}


def internal_factors(cluster: Cluster) -> dict[str, int]:
    """By topic, what the Cluster's config says, else as many as it has brokers, three at most."""
    declared, usual = declared_texts(cluster.spec.config), internal_replicas(cluster)
    return {topic: int(declared.get(name, usual)) for topic, name in _FACTORS.items()}
