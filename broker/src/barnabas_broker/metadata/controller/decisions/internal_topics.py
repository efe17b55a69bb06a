"""The topics that are created on first use, with their partition counts and configs."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.topic_name import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, usual_min_isr

_TRANSACTION_MIN_ISR: Final = "transaction.state.log.min.isr"
_SHARE_MIN_ISR: Final = "share.coordinator.state.topic.min.isr"


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
                "min.insync.replicas": _min_isr(
                    config,
                    _TRANSACTION_MIN_ISR,
                    config.transaction_state_log_min_isr,
                    config.transaction_state_log_replication_factor,
                ),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return _share_group_state(config)
    return NewTopic(name)


def _share_group_state(config: BrokerConfig) -> NewTopic:
    """Return the topic of share coordinators, which prune it by DeleteRecords; records never expire."""
    replicas = config.share_coordinator_state_topic_replication_factor
    return NewTopic(
        SHARE_GROUP_STATE,
        config.share_coordinator_state_topic_num_partitions,
        replicas,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": _min_isr(
                config, _SHARE_MIN_ISR, config.share_coordinator_state_topic_min_isr, replicas
            ),
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    )


def _min_isr(config: BrokerConfig, setting: str, min_isr: int, replicas: int) -> str:
    """Return the min.insync.replicas of a coordinator's topic.

    The default is below the replication factor, unless that is 1, so that one replica may be offline.
    """
    return str(min_isr if setting in config.originals else usual_min_isr(min_isr, replicas))
