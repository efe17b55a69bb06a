"""Check a topic's settings, and resolve them with the broker's settings as defaults."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, Value, did_you_mean, parse_value
from barnabas_core.config.log_config import CleanupPolicy, Compression, LogConfig, ThrottledReplicas, TimestampType
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS

_MIN_LAG: Final = "min.compaction.lag.ms"
_MAX_LAG: Final = "max.compaction.lag.ms"
_BY_BROKER_NAME: Final = {
    synonym.name: name for name, definition in TOPIC_CONFIGS.items() for synonym in definition.synonyms
}
CONTRADICTED: Final = frozenset({"log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"})
"""The broker settings that a topic's own configs may contradict; `check_topics_under` looks for contradictions."""
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
}


class EffectiveLogConfig(NamedTuple):
    """The effective config of a topic, and its stored configs that have no effect."""

    config: LogConfig
    ignored: tuple[ConfigProblem, ...]


def effective_log_config(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> EffectiveLogConfig:
    """Return the topic's own configs, with the broker's as defaults, and the problems of configs that are ignored.

    A stored config that is unknown to this version, is invalid, or contradicts the broker's config is ignored, so that
    every broker can follow the metadata.
    """
    values, problems = usable_topic_values(topic_overrides, broker)
    plain: dict[str, Any] = {field: values[name] for field, name in _PLAIN.items()}
    if values["internal.segment.bytes"] is not None:
        plain["segment_bytes"] = values["internal.segment.bytes"]
    policies = values["cleanup.policy"]
    assert isinstance(policies, tuple), "the value of cleanup.policy must be a tuple"
    if "compact" in policies:  # Only rolled segments can be compacted, so roll within max.compaction.lag.ms.
        plain["roll_ms"] = min(plain["roll_ms"], plain["max_compaction_lag_ms"])
    config = LogConfig(
        **plain,
        leader_throttled_replicas=_throttled(values["leader.replication.throttled.replicas"]),
        follower_throttled_replicas=_throttled(values["follower.replication.throttled.replicas"]),
        compression=Compression(values["compression.type"]),
        cleanup_policies=frozenset(map(CleanupPolicy, policies)),
        timestamp_type=TimestampType(values["message.timestamp.type"]),
    )
    return EffectiveLogConfig(config, problems)


def _throttled(value: Value) -> ThrottledReplicas:
    """Return the replicas in a list that has already been validated: `*`, or PARTITION:BROKER pairs (KIP-73)."""
    assert isinstance(value, tuple), "a setting of type list must have been parsed into a tuple"
    if "*" in value:
        return ThrottledReplicas(all=True)
    pairs = (entry.split(":") for entry in value)
    return ThrottledReplicas(replicas=frozenset((int(partition), int(broker)) for partition, broker in pairs))


def usable_topic_values(
    topic_overrides: Mapping[str, str], broker: BrokerConfig
) -> tuple[dict[str, Value], tuple[ConfigProblem, ...]]:
    """Return the effective values of all settings in TOPIC_CONFIGS, and the problems of overrides that are ignored."""
    values, problems = _overridden(topic_overrides, broker)
    low, high = values[_MIN_LAG], values[_MAX_LAG]
    # The minimum lag replaces a maximum lag that is lower. The replacement is harmless: it only delays compaction.
    if _is_below(high, low):
        problems.append(ConfigProblem(_MAX_LAG, str(high), f"must be at least {_MIN_LAG}={low}"))
        values[_MAX_LAG] = low
    return values, tuple(problems)


def topic_config_problems(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield all problems of a topic's configs; a caller that needs only some pays only for these."""
    values = _all_inherited(broker)
    yield from _override(values, topic_overrides)
    yield from _contradictions(values)


def check_topic_configs(topic_overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise InvalidConfig if a topic's configs have problems."""
    problems = list(topic_config_problems(topic_overrides, broker))
    if problems:
        raise InvalidConfig(problems)


def check_topics_under(topics: Mapping[str, Mapping[str, str]], broker: BrokerConfig) -> None:
    """Raise InvalidConfig for the first topic whose configs contradict those of the broker.

    Only min.compaction.lag.ms and max.compaction.lag.ms can contradict the broker's configs. An AlterConfigs request
    waits for this check, and there may be 100,000 topics, so each pair of values is checked only once.
    """
    checked: set[tuple[str | None, str | None]] = set()
    for topic, overrides in topics.items():
        if _MIN_LAG not in overrides and _MAX_LAG not in overrides:
            continue
        pair = overrides.get(_MIN_LAG), overrides.get(_MAX_LAG)
        if pair not in checked:
            checked.add(pair)
            values = {name: _in_force(name, overrides, broker) for name in (_MIN_LAG, _MAX_LAG)}
            problems = list(_contradictions(values))
            if problems:
                raise InvalidConfig(problem._replace(name=f"topic {topic}: {problem.name}") for problem in problems)


def _in_force(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the effective value of one setting; computing all settings of a topic would take four times as long."""
    try:
        return _parse(name, overrides[name]) if name in overrides else _inherited(name, broker)
    except InvalidConfig:
        return _inherited(name, broker)


def _overridden(
    topic_overrides: Mapping[str, str], broker: BrokerConfig
) -> tuple[dict[str, Value], list[ConfigProblem]]:
    """Return the values of all settings, and the problems of overrides that are invalid or unknown.

    The values are not checked against each other.
    """
    values = _all_inherited(broker)
    return values, list(_override(values, topic_overrides))


def _all_inherited(broker: BrokerConfig) -> dict[str, Value]:
    return {name: _inherited(name, broker) for name in TOPIC_CONFIGS}


def _override(values: dict[str, Value], topic_overrides: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Put the valid overrides into `values`; yield the problems of the others."""
    for name, text in topic_overrides.items():
        try:
            values[name] = _parse(name, text)
        except InvalidConfig as error:
            yield from error.problems


def _parse(name: str, text: str) -> Value:
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        raise InvalidConfig([ConfigProblem(name, text, no_setting(name))])
    return parse_value(definition, text)


def no_setting(name: str) -> str:
    """Return the error message for a name that is not a topic config."""
    return f"is not a setting of a topic{did_you_mean(name, TOPIC_CONFIGS, _BY_BROKER_NAME)}"


def _inherited(name: str, broker: BrokerConfig) -> Value:
    definition = TOPIC_CONFIGS[name]
    # The first synonym is enough, because `broker.value` takes the other synonyms into account.
    return broker.value(definition.synonyms[0].name) if definition.synonyms else definition.default


def _contradictions(values: Mapping[str, Value]) -> Iterable[ConfigProblem]:
    """Yield the problems of configs that are each valid, but contradict each other."""
    low, high = values[_MIN_LAG], values[_MAX_LAG]
    if _is_below(high, low):
        yield ConfigProblem(_MIN_LAG, str(low), f"must be at most {_MAX_LAG}={high}")


def _is_below(value: Value, other: Value) -> bool:
    return isinstance(value, int) and isinstance(other, int) and value < other
