"""The broker's settings for consumer groups."""

from typing import NamedTuple

from barnabas_core.config.broker_config import BrokerConfig

_MINUTE_MS = 60_000


class GroupConfig(NamedTuple):
    """The broker's settings for consumer groups, with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """The maximum time in ms that a new member waits for its JoinGroup response; then it is removed.

    In Kafka, the time is a constant.
    """
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000


def group_config(broker: BrokerConfig) -> GroupConfig:
    """Return the settings for consumer groups from the settings of the broker."""
    return GroupConfig(
        min_session_timeout_ms=broker.group_min_session_timeout_ms,
        max_session_timeout_ms=broker.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms,
        max_size=broker.group_max_size,
        offset_metadata_max_bytes=broker.offset_metadata_max_bytes,
        offsets_retention_ms=broker.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
        offsets_commit_timeout_ms=broker.offsets_commit_timeout_ms,
    )
