"""The tables of settings agree with names, types and defaults of Apache Kafka 4.4 (`kafka_4_4_configs.csv`)."""

import csv
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import fields

import barnabas_broker
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Dynamic, InvalidConfig, parse_value
from barnabas_core.config.group_configs import GROUP_CONFIGS
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.config.unused import REFUSED_CONFIGS, unused_reason

SOURCE = Path(barnabas_broker.__file__).parent
OWN = {
    "cluster.id",
    "metadata.store",
    "log.dirs.placement",
    "log.dirs.headroom.bytes",
    "advertised.hosts",
    "http.listener",
    "http.ssl.certificate.location",
    "http.ssl.key.location",
    "http.bearer.token.location",
    "sasl.oauthbearer.allowed.urls",
    "sasl.plain.credentials",
    "sasl.scram.password.overlap.max.ms",
}
OWN_DYNAMIC = {"broker.rack", "advertised.hosts"}
"""Settings that are dynamic only in Barnabas."""
AUTHORIZERS = {"super.users", "allow.everyone.if.no.acl.found"}
"""Settings that Kafka defines in its authorizer."""
OTHER_DEFAULTS = {
    "group.consumer.assignment.interval.ms": "members that join would wait a second for nothing",
    "group.share.assignment.interval.ms": "as above",
    "node.id": "Kafka asks for it; one broker needs none",
    "socket.listen.backlog.size": "Kafka's 50 makes thousands of clients wait",
    "socket.receive.buffer.bytes": "a fixed size stops the system from sizing it as the way to the client needs",
    "socket.send.buffer.bytes": "as above",
}


THROTTLES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Settings outside of Kafka's table: they can be set only while a broker runs (KIP-73)."""


class Fact(NamedTuple):
    resource: str
    name: str
    type: str
    default: str
    dynamic: str


def facts(resource: str) -> list[Fact]:
    with (Path(__file__).parent / "kafka_4_4_configs.csv").open(encoding="utf-8", newline="") as file:
        return [fact for fact in map(Fact._make, csv.reader(file)) if fact.resource == resource]


def defaults_agree(definition: ConfigDefinition, text: str) -> bool:
    return definition.default in (None, "", ()) if not text else parse_value(definition, text) == definition.default


def test_every_broker_setting_of_kafka_is_used_ignored_or_refused() -> None:
    for fact in facts("broker"):
        places = [
            fact.name in BROKER_CONFIGS,
            fact.name in REFUSED_CONFIGS,
            fact.name not in REFUSED_CONFIGS and unused_reason(fact.name) is not None,
        ]
        assert places.count(True) == 1, fact.name


def test_broker_settings_have_kafkas_names_types_and_defaults() -> None:
    kafka = {fact.name: fact for fact in facts("broker")}
    assert BROKER_CONFIGS.keys() - kafka.keys() == OWN | THROTTLES | AUTHORIZERS
    for name, definition in BROKER_CONFIGS.items():
        if name in kafka:
            assert definition.type.name == kafka[name].type, name
            assert defaults_agree(definition, kafka[name].default) == (name not in OTHER_DEFAULTS), name


def test_every_dynamic_setting_is_dynamic_in_kafka_too() -> None:
    kafka = {fact.name for fact in facts("broker") if fact.dynamic}
    ours = {name for name, d in BROKER_CONFIGS.items() if d.dynamic is not Dynamic.READ_ONLY}
    assert ours <= kafka | THROTTLES | OWN_DYNAMIC


def test_topic_settings_have_kafkas_names_types_and_defaults() -> None:
    kafka = {fact.name: fact for fact in facts("topic")}
    assert kafka.keys() == TOPIC_CONFIGS.keys()
    for name, definition in TOPIC_CONFIGS.items():
        assert definition.type.name == kafka[name].type, name
        assert defaults_agree(definition, kafka[name].default), name


def test_group_settings_have_kafkas_names_types_and_defaults() -> None:
    kafka = {fact.name: fact for fact in facts("group") if not fact.name.endswith("assignor.offload.enable")}
    assert kafka.keys() == GROUP_CONFIGS.keys()
    for name, definition in GROUP_CONFIGS.items():
        assert definition.type.name == kafka[name].type, name
        assert defaults_agree(definition, kafka[name].default) == (f"group.{name}" not in OTHER_DEFAULTS), name
        assert all(definition.default == BROKER_CONFIGS[synonym.name].default for synonym in definition.synonyms), name


def test_every_default_is_valid() -> None:
    for definition in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values()):
        if definition.default is not None and definition.check is not None:
            assert definition.check.accepts(definition.default), definition.name


def test_every_setting_has_documentation_and_a_description_of_allowed_values() -> None:
    for definition in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()):
        assert definition.documentation.endswith("."), definition.name
        assert definition.allowed.startswith("must be "), definition.name


def test_the_first_synonym_of_a_topic_setting_is_a_broker_setting_with_the_same_type_and_unit() -> None:
    for name, definition in TOPIC_CONFIGS.items():
        for synonym in definition.synonyms[:1]:  # Its value is taken as it is.
            assert synonym.factor == 1, name
            assert BROKER_CONFIGS[synonym.name].type is definition.type, name
        for synonym in definition.synonyms[1:]:
            assert BROKER_CONFIGS[synonym.name].type is not ConfigType.STRING or synonym.factor == 1, name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 2000000 ", 2_000_000),
        ("segment.bytes", "+2000000", 2_000_000),
        ("unclean.leader.election.enable", "TRUE", True),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete", "delete")),
        ("compression.gzip.level", "-1", -1),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_text_that_kafka_accepts_is_accepted(name: str, text: str, value: object) -> None:
    assert parse_value(TOPIC_CONFIGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("segment.bytes", "100", "must be an integer, at least 1048576"),
        ("segment.bytes", "abc", "must be an integer, at least 1048576"),
        ("segment.bytes", "", "must be an integer, at least 1048576"),
        ("segment.bytes", "2_000_000", "must be an integer, at least 1048576"),
        ("segment.bytes", "9999999999", "must be an integer, at least 1048576"),
        ("compression.gzip.level", "0", "must be an integer, from 1 to 9 or -1"),
        ("preallocate", "yes", "must be true or false"),
        ("min.cleanable.dirty.ratio", "1.1", "must be a number, from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "must be a number, from 0 to 1"),
        ("min.cleanable.dirty.ratio", "0,5", "must be a number, from 0 to 1"),
        ("cleanup.policy", "compact,", "must be a list separated by commas, one of compact, delete"),
        ("cleanup.policy", "Compact", "must be a list separated by commas, one of compact, delete"),
        ("message.timestamp.type", "createtime", "must be text, one of CreateTime, LogAppendTime"),
        ("compression.type", "none", "must be text, one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("retention.ms", "-2", "must be an integer, at least -1"),
        ("leader.replication.throttled.replicas", "x", "must be a list separated by commas, * or a list of"),
        (
            "leader.replication.throttled.replicas",
            f"0:{'9' * 4301}",
            "must be a list separated by commas, * or a list of",
        ),
        ("remote.storage.enable", "true", "must be true or false, false (tiered storage is not supported)"),
    ],
)
def test_the_error_for_text_that_kafka_refuses_says_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_value(TOPIC_CONFIGS[name], text)
    (problem,) = refused.value.problems
    assert (problem.name, problem.value) == (name, text)
    assert problem.allowed.startswith(allowed)


def test_every_setting_of_the_broker_is_read_by_the_code() -> None:
    """A setting without effect would be an empty promise: it belongs in `unused`, which logs a warning."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    defaults_of_topics = {name for definition in TOPIC_CONFIGS.values() for name, _ in definition.synonyms}
    kept = {"originals", "cluster_overrides", "broker_overrides", "values"}
    for field in {each.name for each in (*fields(BrokerConfig), *fields(LogConfig))} - kept:
        is_default = field.replace("_", ".") in defaults_of_topics
        assert is_default or re.search(rf"\.{field}\b", source), field
