"""Topics that are made without anybody asking for them by name, number and config."""

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """A topic as it is made on first use: those of the coordinators as these need them, others by default."""
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
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(name)
