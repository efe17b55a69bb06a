"""The configs of groups: what is allowed, what is in effect, and how DescribeConfigs shows it."""

import re

import pytest

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.describe import ConfigSource, describe_group
from barnabas_core.config.group_configs import (
    GroupConfig,
    OffsetReset,
    ShareGroupConfig,
    effective_group_config,
    effective_share_config,
    group_config_problems,
    parse_offset_reset,
)

STOCK = parse_broker_config({})
SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def test_a_group_without_configs_has_those_of_the_broker() -> None:
    config = effective_group_config({}, parse_broker_config({"group.consumer.heartbeat.interval.ms": "7000"}))
    assert config == GroupConfig(45_000, 7_000, 0, 2**31 - 1, ("uniform", "range"), 600_000, "bidirectional")


def test_a_groups_own_configs_come_before_those_of_the_broker() -> None:
    config = effective_group_config({SESSION: "50000", ASSIGNMENT: "1000"}, STOCK)
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.assignment_interval_ms) == (
        50000,
        5000,
        1000,
    )


def test_a_stored_config_outside_of_the_bounds_is_moved_into_them() -> None:
    config = effective_group_config({SESSION: "90000", HEARTBEAT: "1", ASSIGNMENT: "x", "future": "1"}, STOCK)
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.assignment_interval_ms) == (60000, 5000, 0)


def test_a_share_group_has_its_own_configs_within_the_bounds_of_the_broker() -> None:
    stock = effective_share_config({}, STOCK)
    members = 45_000, 5_000, 0, 200, ("simple",)
    assert stock == ShareGroupConfig(
        *members, 30_000, 5, 2_000, OffsetReset("latest"), False, True, "", copies_dead_letters=False
    )
    configs = {
        "share.delivery.count.limit": "99",
        "share.record.lock.duration.ms": "1000",
        "share.auto.offset.reset": "by_duration:PT90S",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "errors.deadletterqueue.topic.name": "dlq.orders",
    }
    config = effective_share_config(configs, STOCK)
    assert (config.delivery_count_limit, config.record_lock_duration_ms) == (10, 15_000)
    assert config.auto_offset_reset == OffsetReset("by_duration", 90_000)
    assert (config.is_read_committed, config.may_renew, config.dead_letter_topic) == (True, False, "dlq.orders")


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P1D", 86_400_000),
        ("P2DT3H4M5.006S", 183_845_006),
        ("pt0.5s", 500),
        ("PT-1M90S", 30_000),
        ("-PT-1.5S", 1_500),
        ("PT0S", 0),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, duration_ms: int) -> None:
    assert parse_offset_reset(f"by_duration:{text}") == OffsetReset("by_duration", duration_ms)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1Y", "PT1", "-PT1S", "PT-0.5S", f"PT{'9' * 5000}S"])
def test_text_that_is_no_duration_of_zero_or_more_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(text)}$"):
        parse_offset_reset(f"by_duration:{text}")


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({SESSION: "1000"}, "must be from 45000 to 60000, which group.consumer.min.session.timeout.ms and"),
        ({HEARTBEAT: "20000"}, "must be from 5000 to 15000"),
        ({ASSIGNMENT: "-1"}, "must be an integer, at least 0"),
        ({"consumer.session.timeout": "1"}, "is not a config of a group; did you mean consumer.session.timeout.ms"),
        ({"share.record.lock.duration.ms": "90000"}, "must be from 15000 to 60000, which group.share.min.record.lock."),
        ({"share.record.lock.duration.ms": "0"}, "must be an integer, at least 1000"),
        ({"share.delivery.count.limit": "1"}, "must be an integer, at least 2"),
        ({"share.auto.offset.reset": "none"}, "must be text, latest, earliest or by_duration: with a duration"),
        ({"share.auto.offset.reset": "by_duration:-P1D"}, "must be text, latest, earliest or by_duration:"),
        ({"share.isolation.level": "serializable"}, "must be text, one of read_committed, read_uncommitted"),
        ({"errors.deadletterqueue.topic.name": "__dlq"}, "the name of a topic that does not begin with __"),
        ({"share.session.timeout.ms": "45000", "share.heartbeat.interval.ms": "60000"}, "must be from 5000 to 15000"),
        ({"streams.num.standby.replicas": "1"}, "cannot be set, because streams groups are not supported"),
    ],
)
def test_a_wrong_config_is_refused_with_what_is_allowed(configs: dict[str, str], problem: str) -> None:
    (found,) = group_config_problems(configs, STOCK)
    assert problem in str(found)


def test_the_session_must_be_longer_than_the_heartbeat_interval() -> None:
    broker = parse_broker_config({"group.consumer.min.session.timeout.ms": "1000"})
    (found,) = group_config_problems({SESSION: "5000"}, broker)
    assert str(found) == f"{SESSION}=5000: must be greater than {HEARTBEAT}=5000"
    assert not list(group_config_problems({SESSION: "5001"}, broker))


def test_an_entry_names_the_brokers_config_as_its_synonym() -> None:
    broker = parse_broker_config({"group.consumer.session.timeout.ms": "46000"})
    entries = {entry.name: entry for entry in describe_group({SESSION: "50000"}, broker)}
    assert [name for name in entries if name.startswith("consumer.")] == [ASSIGNMENT, HEARTBEAT, SESSION]
    own, inherited = entries[SESSION], entries[HEARTBEAT]
    assert (own.value, own.source, inherited.value, inherited.source) == (
        "50000",
        ConfigSource.GROUP,
        "5000",
        ConfigSource.DEFAULT,
    )
    assert own.synonyms == (
        (SESSION, "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "46000", ConfigSource.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group.consumer.session.timeout.ms": "30000"}, "group.consumer.min.session.timeout.ms=45000"),
        ({"group.consumer.max.heartbeat.interval.ms": "1000"}, "group.consumer.heartbeat.interval.ms=5000"),
        ({"group.consumer.assignors": ""}, "group.consumer.assignors"),
        ({"group.consumer.assignors": "uniform,org.example.Mine"}, "one of uniform, range"),
        ({"group.consumer.migration.policy": "sideways"}, "bidirectional, upgrade, downgrade and disabled"),
        (
            {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
            "must be greater than group.consumer.heartbeat.interval.ms=5000",
        ),
    ],
)
def test_settings_of_the_broker_that_contradict_each_other_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        parse_broker_config(settings)
