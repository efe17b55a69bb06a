"""A topic's settings: checked, and resolved over the broker's."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, Value, parse_value
from barnabas_core.config.log_config import CleanupPolicy, Compression, LogConfig, TimestampType
from barnabas_core.config.throttled_replicas import ThrottledReplicas, parse_throttled_replicas
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS

_PLAIN: Final = {
    "segment_bytes": "segment.bytes",
    "roll_ms": "segment.ms",
    "roll_jitter_ms": "segment.jitter.ms",
    "index_interval_bytes": "index.interval.bytes",
    "index_bytes_max": "segment.index.bytes",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "message_bytes_max": "max.message.bytes",
    "decompressed_message_bytes_max": "max.decompressed.message.bytes",
    "compression_gzip_level": "compression.gzip.level",
    "compression_lz4_level": "compression.lz4.level",
    "compression_zstd_level": "compression.zstd.level",
    "min_cleanable_dirty_ratio": "min.cleanable.dirty.ratio",
    "delete_retention_ms": "delete.retention.ms",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "min_insync_replicas": "min.insync.replicas",
    "unclean_leader_election": "unclean.leader.election.enable",
    "preallocate": "preallocate",
}


def resolve_log_config(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """What is in force for a topic: its own settings, else the broker's. Raises InvalidConfig."""
    values = topic_values(topic_overrides, broker)
    plain: dict[str, Any] = {field: values[name] for field, name in _PLAIN.items()}
    if values["internal.segment.bytes"] is not None:
        plain["segment_bytes"] = values["internal.segment.bytes"]
    policies = values["cleanup.policy"]
    assert isinstance(policies, tuple), "cleanup.policy is a list"
    if "compact" in policies:  # The active segment is never compacted, so it must end in time.
        plain["roll_ms"] = min(plain["roll_ms"], plain["max_compaction_lag_ms"])
    return LogConfig(
        **plain,
        leader_throttled_replicas=_throttled(values["leader.replication.throttled.replicas"]),
        follower_throttled_replicas=_throttled(values["follower.replication.throttled.replicas"]),
        compression=Compression(values["compression.type"]),
        cleanup_policies=frozenset(map(CleanupPolicy, policies)),
        timestamp_type=TimestampType(values["message.timestamp.type"]),
    )


def _throttled(value: Value) -> ThrottledReplicas:
    assert isinstance(value, tuple), "it is a list"
    return parse_throttled_replicas(value)


def topic_values(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """The value in force of every setting of TOPIC_CONFIGS. Raises InvalidConfig with every bad and unknown one."""
    values = {name: _inherited(name, broker) for name in TOPIC_CONFIGS}
    problems: list[ConfigProblem] = []
    for name, text in topic_overrides.items():
        try:
            values[name] = _parse(name, text)
        except InvalidConfig as error:
            problems += error.problems
    problems += _contradictions(values)
    if problems:
        raise InvalidConfig(problems)
    return values


def check_topic_configs(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises InvalidConfig with everything that is wrong with a topic's settings."""
    topic_values(topic_overrides, broker)


def _parse(name: str, text: str) -> Value:
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        raise InvalidConfig([ConfigProblem(name, text, "is no setting of a topic")])
    return parse_value(definition, text)


def _inherited(name: str, broker: BrokerConfig) -> Value:
    definition = TOPIC_CONFIGS[name]
    # The broker's settings have their own synonyms resolved already, so the first one tells.
    return broker.value(definition.synonyms[0].name) if definition.synonyms else definition.default


def _contradictions(values: Mapping[str, Value]) -> Iterable[ConfigProblem]:
    """Settings that are fine by themselves and not together."""
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield ConfigProblem("min.compaction.lag.ms", str(low), f"must be at most max.compaction.lag.ms={high}")
