"""Suggestions in the errors for a misspelled setting, and for a number with a unit."""

import pytest

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.topic_configs import check_topic_configs

BROKER = parse_broker_config({})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.mss", "5", "retention.mss=5: is not a setting of a topic; did you mean retention.ms?"),
        ("log.retention.ms", "5", "log.retention.ms=5: is not a setting of a topic; did you mean retention.ms?"),
        ("log.retention.hours", "5", "log.retention.hours=5: is not a setting of a topic; did you mean retention.ms?"),
        ("message.max.bytes", "5", "message.max.bytes=5: is not a setting of a topic; did you mean max.message.bytes?"),
        ("colour", "5", "colour=5: is not a setting of a topic"),
        ("retention.ms", "7d", "retention.ms=7d: must be an integer, at least -1; write 7d as 604800000"),
        ("retention.ms", "1.5h", "retention.ms=1.5h: must be an integer, at least -1; write 1.5h as 5400000"),
        ("retention.ms", "10Gi", "retention.ms=10Gi: must be an integer, at least -1"),
        ("retention.bytes", "10Gi", "retention.bytes=10Gi: must be an integer; write 10Gi as 10737418240"),
        ("segment.bytes", "1GB", "segment.bytes=1GB: must be an integer, at least 1048576; write 1GB as 1000000000"),
        ("segment.bytes", "4Gi", "segment.bytes=4Gi: must be an integer, at least 1048576"),
        ("segment.bytes", "1Ki", "segment.bytes=1Ki: must be an integer, at least 1048576"),
        ("flush.messages", "7d", "flush.messages=7d: must be an integer, at least 1"),
        ("retention.ms", "0.0001s", "retention.ms=0.0001s: must be an integer, at least -1"),
    ],
)
def test_the_error_for_a_setting_of_a_topic_suggests_the_right_one(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_topic_configs({name: text}, BROKER)
    assert [str(problem) for problem in refused.value.problems] == [told]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("num.partition", "5", "num.partition=5: is not a setting of a broker; did you mean num.partitions?"),
        ("retention.ms", "5", "retention.ms=5: is not a setting of a broker; did you mean log.retention.ms?"),
        ("log.retention.hours", "7d", "log.retention.hours=7d: must be an integer, at least 1 or -1; write 7d as 168"),
        ("log.retention.hours", "30m", "log.retention.hours=30m: must be an integer, at least 1 or -1"),
        (
            "log.retention.weeks",
            "3",
            "log.retention.weeks=3: is not a setting of a broker; did you mean log.retention.ms?",
        ),
    ],
)
def test_the_error_for_a_setting_of_a_broker_suggests_the_right_one(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_broker_config({name: text})
    assert [str(problem) for problem in refused.value.problems] == [told]
