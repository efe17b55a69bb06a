"""A topic's settings override the broker's; descriptions contain both."""

import time

import pytest

from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config, unused_settings
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.describe import ConfigEntry, ConfigSource, ConfigSynonym, describe_broker, describe_topic
from barnabas_core.config.log_config import CleanupPolicy, Compression, LogConfig, TimestampType
from barnabas_core.config.topic_configs import check_topic_configs, check_topics_under, effective_log_config
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from harness.soak import took

DEFAULTS = parse_broker_config({})


def resolved_config(overrides: dict[str, str], broker: BrokerConfig) -> LogConfig:
    """Return the effective config, and check that no setting was ignored."""
    config, ignored = effective_log_config(overrides, broker)
    assert ignored == ()
    return config


def test_a_log_without_settings_has_kafkas_defaults() -> None:
    assert resolved_config({}, DEFAULTS) == LogConfig()


def test_the_settings_of_the_broker_are_the_defaults_of_a_topic() -> None:
    broker = parse_broker_config({"log.retention.hours": "2", "compression.type": "lz4", "log.roll.ms": "77"})
    resolved = resolved_config({"segment.ms": "88"}, broker)
    assert (resolved.retention_ms, resolved.compression, resolved.roll_ms) == (7_200_000, Compression.LZ4, 88)


def test_the_settings_of_a_topic_are_parsed_to_their_types() -> None:
    resolved = resolved_config(
        {
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.1",
        },
        DEFAULTS,
    )
    assert resolved.cleanup_policies == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    assert (resolved.compacted, resolved.deletes) == (True, True)
    assert resolved.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert resolved.min_cleanable_dirty_ratio == 0.1


def test_an_empty_cleanup_policy_neither_compacts_nor_deletes() -> None:
    resolved = resolved_config({"cleanup.policy": ""}, DEFAULTS)
    assert (resolved.compacted, resolved.deletes) == (False, False)


def test_internal_segment_bytes_allows_small_segments() -> None:
    assert resolved_config({"internal.segment.bytes": "100"}, DEFAULTS).segment_bytes == 100


def test_all_invalid_settings_of_a_topic_are_reported_together() -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_topic_configs({"retention.ms": "x", "nope": "1", "segment.bytes": "1"}, DEFAULTS)
    assert [str(problem) for problem in refused.value.problems] == [
        "retention.ms=x: must be an integer, at least -1",
        "nope=1: is not a setting of a topic",
        "segment.bytes=1: must be an integer, at least 1048576",
    ]


def test_min_compaction_lag_must_not_exceed_max_compaction_lag() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms=10: must be at most max\.compaction\.lag\.ms=5"):
        check_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, DEFAULTS)


def described(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (entry,) = [entry for entry in entries if entry.name == name]
    return entry


def test_a_description_contains_the_source_of_a_topics_value() -> None:
    broker = (
        parse_broker_config({"log.retention.hours": "2"})
        .with_usable({"log.retention.ms": "4"}, {"log.retention.ms": "3"})
        .config
    )
    entry = described(describe_topic({"retention.ms": " 5 "}, broker), "retention.ms")
    assert (entry.value, entry.source, entry.read_only) == ("5", ConfigSource.TOPIC, False)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", " 5 ", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
    )
    inherited = described(describe_topic({}, broker), "retention.ms")
    assert (inherited.value, inherited.source) == ("4", ConfigSource.DYNAMIC_BROKER)


def test_a_description_has_default_sources_for_unset_values_and_no_internal_settings() -> None:
    entries = describe_topic({}, DEFAULTS)
    assert [entry.name for entry in entries] == sorted(set(TOPIC_CONFIGS) - {"internal.segment.bytes"})
    assert {entry.source for entry in entries if entry.name != "min.insync.replicas"} == {ConfigSource.DEFAULT}
    assert described(entries, "cleanup.policy").value == "delete"


def test_a_description_of_a_broker_contains_read_only_flags() -> None:
    entries = describe_broker(parse_broker_config({"num.partitions": "3"}))
    partitions = described(entries, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    assert not described(entries, "message.max.bytes").read_only
    retention = described(entries, "log.retention.ms")
    assert (retention.value, retention.synonyms) == (None, ()), "log.retention.hours is set, log.retention.ms is not"
    assert described(entries, "log.retention.hours").value == "168"
    assert described(entries, "broker.rack").value is None


def test_a_segment_of_a_compacted_topic_ends_before_max_compaction_lag_ms() -> None:
    lag = {"max.compaction.lag.ms": "99"}
    assert resolved_config({**lag, "cleanup.policy": "compact"}, DEFAULTS).roll_ms == 99
    assert resolved_config({**lag, "cleanup.policy": "delete"}, DEFAULTS).roll_ms == LogConfig().roll_ms


def test_throttled_replicas_are_a_wildcard_or_pairs_of_partition_and_broker() -> None:
    name = "leader.replication.throttled.replicas"
    some = resolved_config({name: "0:1,3:12"}, DEFAULTS).leader_throttled_replicas
    assert [some.includes(*pair) for pair in ((0, 1), (3, 12), (1, 0), (3, 1))] == [True, True, False, False]
    assert resolved_config({name: "*"}, DEFAULTS).leader_throttled_replicas.includes(7, 7)
    assert not resolved_config({name: ""}, DEFAULTS).leader_throttled_replicas.includes(0, 0)
    for bad in ("0:", "all", "1:2:3", "0:1;2:3", "-1:2"):
        with pytest.raises(InvalidConfig, match=name):
            check_topic_configs({name: bad}, DEFAULTS)


def test_the_throttled_rates_are_dynamic_settings() -> None:
    entries = describe_broker(DEFAULTS.with_usable({"leader.replication.throttled.rate": "1000"}, {}).config)
    rate = described(entries, "leader.replication.throttled.rate")
    assert (rate.value, rate.source, rate.read_only) == ("1000", ConfigSource.DYNAMIC_BROKER, False)
    assert DEFAULTS.follower_replication_throttled_rate == 2**63 - 1
    (problem,) = DEFAULTS.with_usable({"follower.replication.throttled.rate": "-1"}, {}).ignored
    assert str(problem) == "follower.replication.throttled.rate=-1: must be an integer, at least 0"


def test_an_unusable_stored_setting_is_ignored_and_reported() -> None:
    stored = {"retention.ms": "never", "segment.bytes": "2097152", "of.a.newer.version": "7"}
    config, ignored = effective_log_config(stored, DEFAULTS)
    assert (config.segment_bytes, config.retention_ms) == (2097152, DEFAULTS.log_retention_ms)
    assert [str(problem) for problem in ignored] == [
        "retention.ms=never: must be an integer, at least -1",
        "of.a.newer.version=7: is not a setting of a topic",
    ]


def test_the_longer_of_two_contradicting_compaction_lags_wins() -> None:
    broker = parse_broker_config({"log.cleaner.max.compaction.lag.ms": "1000"})
    config, ignored = effective_log_config({"min.compaction.lag.ms": "60000"}, broker)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (60000, 60000)
    assert [str(problem) for problem in ignored] == [
        "max.compaction.lag.ms=1000: must be at least min.compaction.lag.ms=60000"
    ]


def test_a_description_contains_the_effective_value_instead_of_an_unusable_one() -> None:
    entry = described(describe_topic({"retention.ms": "never"}, DEFAULTS), "retention.ms")
    assert entry.value == str(DEFAULTS.log_retention_ms)
    assert entry.synonyms[0] == ConfigSynonym("retention.ms", "never", ConfigSource.TOPIC)


def test_ten_thousand_topics_are_checked_with_a_brokers_settings_within_a_turn() -> None:
    topics = {f"topic-{number}": {"min.compaction.lag.ms": str(number % 50)} for number in range(10_000)}
    began_s = time.thread_time()
    check_topics_under(topics, DEFAULTS)
    took("the check of 10,000 topics", time.thread_time() - began_s, 0.05)
    topics["flights"] = {"min.compaction.lag.ms": "60000"}
    with pytest.raises(InvalidConfig) as refused:
        check_topics_under(topics, parse_broker_config({"log.cleaner.max.compaction.lag.ms": "1000"}))
    assert str(refused.value) == (
        "topic flights: min.compaction.lag.ms=60000: must be at most max.compaction.lag.ms=1000"
    )


def test_an_unusable_stored_setting_does_not_contradict_a_setting_of_the_broker() -> None:
    """The stored setting has no effect: the broker's setting is in force instead."""
    broker = parse_broker_config({"log.cleaner.max.compaction.lag.ms": "1000"})
    check_topics_under({"flights": {"min.compaction.lag.ms": "long", "max.compaction.lag.ms": "5"}}, broker)
    with pytest.raises(InvalidConfig, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        check_topics_under({"flights": {"min.compaction.lag.ms": "7000", "max.compaction.lag.ms": "never"}}, broker)


def test_unusable_dynamic_settings_are_ignored_individually() -> None:
    own = {"log.cleaner.max.compaction.lag.ms": "5", "message.max.bytes": "many", "of.a.newer.version": "1"}
    everybodys = {"log.cleaner.min.compaction.lag.ms": "10", "log.retention.ms": "77"}
    config, ignored = DEFAULTS.with_usable(own, everybodys)
    assert (config.log_retention_ms, config.message_max_bytes) == (77, DEFAULTS.message_max_bytes)
    lag_min_ms = config.value("log.cleaner.min.compaction.lag.ms")
    lag_max_ms = config.value("log.cleaner.max.compaction.lag.ms")
    assert isinstance(lag_min_ms, int)
    assert isinstance(lag_max_ms, int)
    assert lag_min_ms <= lag_max_ms
    assert {problem.name for problem in ignored} == {
        "message.max.bytes",
        "of.a.newer.version",
        "log.cleaner.min.compaction.lag.ms",
    }
    assert DEFAULTS.with_usable({"log.retention.ms": "77"}, {}).ignored == ()


def test_min_insync_replicas_is_described_as_a_cluster_default() -> None:
    """KIP-966: min.insync.replicas belongs to the cluster while eligible leader replicas are enabled."""
    config = parse_broker_config({"min.insync.replicas": "2"})
    entry = described(describe_broker(config), "min.insync.replicas")
    assert (entry.value, entry.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert described(describe_topic({}, config), "min.insync.replicas").source is ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_a_dynamic_setting_without_effect_is_described() -> None:
    config, ignored = DEFAULTS.with_usable({"num.io.threads": "3"}, {"log.cleaner.threads": "2"})
    assert ignored == ()
    entry = described(describe_broker(config), "num.io.threads")
    assert (entry.value, entry.source, entry.read_only) == ("3", ConfigSource.DYNAMIC_BROKER, False)
    assert described(describe_broker(config), "log.cleaner.threads").source is ConfigSource.DYNAMIC_DEFAULT_BROKER


@pytest.mark.parametrize("name", ["port", "reserved.broker.max.id"])
def test_settings_of_older_brokers_are_accepted_with_a_warning(name: str) -> None:
    assert unused_settings(parse_broker_config({name: "1"}).originals)[0].startswith(f"{name} has no effect: ")
