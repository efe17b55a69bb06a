"""The replication factors and configs of internal topics, which are derived from the Cluster."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE, usual_min_isr
from barnabas_operator.planning.brokers.local_properties import internal_replicas
from barnabas_operator.planning.brokers.pod_properties import MIN_ISR
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.topics.topic_steps import AlterConfigs
from barnabas_operator.resources.cluster import Cluster

_FACTORS: Final[Mapping[str, str]] = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}
_MIN_ISR_MAX: Final = 2
"""The default of `transaction.state.log.min.isr`."""


def internal_factors(cluster: Cluster) -> dict[str, int]:
    """Return, by topic, the replication factor in spec.config, or else the number of brokers, up to three."""
    declared, usual = declared_texts(cluster.spec.config), internal_replicas(cluster)
    return {topic: int(declared.get(name, usual)) for topic, name in _FACTORS.items()}


def internal_configs(cluster: Cluster, state: ClusterState) -> Iterator[AlterConfigs]:
    """Yield the step that sets `min.insync.replicas` of `__transaction_state`, if the topic needs a change.

    Without a value in spec.config, the default depends on the current or the wanted number of replicas, whichever is
    lower.
    """
    found = state.topics.get(TRANSACTION_STATE)
    if found is None or not found.partitions:
        return
    fewest = min(internal_factors(cluster)[TRANSACTION_STATE], *map(len, found.partitions))
    declared = declared_texts(cluster.spec.config).get("transaction.state.log.min.isr")
    wanted = declared or str(usual_min_isr(_MIN_ISR_MAX, fewest))
    if found.overrides.get(MIN_ISR) != wanted:
        yield AlterConfigs(TRANSACTION_STATE, {MIN_ISR: wanted})
