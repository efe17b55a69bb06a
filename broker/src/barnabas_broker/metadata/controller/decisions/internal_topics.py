"""The topics that are created on first use, with their partition counts and configs."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE, usual_min_isr

_MIN_ISR: Final = "transaction.state.log.min.isr"


def is_compacted(configs: Mapping[str, str]) -> bool:
    """True if cleanup.policy is `compact` without `delete`, as coordinators require."""
    return configs.get("cleanup.policy") == "compact"


NOT_COMPACTED: Final = (
    f"transactions are refused, because the topic {TRANSACTION_STATE} does not have cleanup.policy=compact (an older "
    "version created the topic with ordinary configs): set the topic's cleanup.policy to compact, or delete the topic "
    "if nobody needs its records"
)


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return the topic that the broker creates when a client first uses a topic with this name.

    An internal topic gets the configs that its coordinators need.
    """
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
    """Return the min.insync.replicas of `__transaction_state`.

    The default is below the replication factor, unless that is 1, so that one replica may be offline.
    """
    if _MIN_ISR in config.originals:
        return config.transaction_state_log_min_isr
    return usual_min_isr(config.transaction_state_log_min_isr, config.transaction_state_log_replication_factor)
