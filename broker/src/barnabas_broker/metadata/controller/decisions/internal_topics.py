"""Topics that are created on first use, without a request that says partitions and configs."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE, usual_min_isr

_MIN_ISR: Final = "transaction.state.log.min.isr"


def is_compacted(configs: Mapping[str, str]) -> bool:
    """True if a topic keeps the last record of each key, as a coordinator needs it."""
    return configs.get("cleanup.policy") == "compact"


NOT_COMPACTED: Final = (
    f"{TRANSACTION_STATE} lacks cleanup.policy=compact (an older version made it as an ordinary topic): transactions "
    "are refused; delete it if nobody needs its records (it is made again on use), or set its cleanup.policy to compact"
)


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return a topic as it is created on first use: internal topics as coordinators need them, others by default."""
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(_min_isr(config)),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(name)


def _min_isr(config: BrokerConfig) -> int:
    """Return min.insync.replicas by the file; its default never stops transactions while one broker is down."""
    if _MIN_ISR in config.originals:
        return config.transaction_state_log_min_isr
    return usual_min_isr(config.transaction_state_log_min_isr, config.transaction_state_log_replication_factor)
