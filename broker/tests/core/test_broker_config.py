"""A broker's settings: how a file is read, and all its problems."""

import pytest

from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config, unused_settings
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, parse_properties
from barnabas_core.config.listeners import Endpoint, reachable

STOCK_KRAFT_FILE = """
# Kafka ships this file.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems_of(properties: dict[str, str]) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as refused:
        parse_broker_config(properties)
    return {problem.name: problem.allowed for problem in refused.value.problems}


def test_a_stock_kraft_file_starts_a_broker() -> None:
    config = parse_broker_config(parse_properties(STOCK_KRAFT_FILE))
    assert config.broker_id == 1
    assert config.listeners.bound == (Endpoint("PLAINTEXT", "", 9092),)
    assert config.listeners.advertised == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_store == "sqlite:////tmp/kraft-combined-logs/metadata.sqlite"
    assert config.offsets_topic_replication_factor == 1


def test_log_preallocate_is_accepted_with_a_warning() -> None:
    assert parse_broker_config({"log.preallocate": "true"}).value("log.preallocate") is True
    assert unused_settings({"log.preallocate": "true"}) == [
        "log.preallocate has no effect: segment files grow as they are written"
    ]


def test_a_warning_names_each_setting_without_effect_and_the_reason() -> None:
    warnings = unused_settings(parse_properties(STOCK_KRAFT_FILE))
    assert [warning.partition(" ")[0] for warning in warnings] == [
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "num.network.threads",
        "num.io.threads",
        "num.recovery.threads.per.data.dir",
    ]
    assert all(" has no effect: " in warning for warning in warnings)


def test_every_problem_of_a_file_is_reported_with_its_line() -> None:
    text = "num.partitions=none\nnum.partition=3\n\nlog.segment.bytes=1\nlisteners=NOBODY://:9093\n"
    with pytest.raises(InvalidConfig) as refused:
        parse_broker_config(parse_properties(text))
    assert set(refused.value.problems) == {
        ConfigProblem("num.partition", "3", "is not a setting of a broker; did you mean num.partitions?", 2),
        ConfigProblem("num.partitions", "none", "must be an integer, at least 1", 1),
        ConfigProblem("log.segment.bytes", "1", "must be an integer, at least 1048576", 4),
        ConfigProblem(
            "listeners",
            "NOBODY://:9093",
            "listener.security.protocol.map must name the protocol of the listener NOBODY",
            5,
        ),
    }
    assert "line 1: num.partitions=none: must be an integer, at least 1" in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "7"}, 420_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "7", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "5"}, -1),
    ],
)
def test_the_retention_setting_with_the_finest_unit_wins(properties: dict[str, str], retention_ms: int) -> None:
    config = parse_broker_config(properties)
    assert config.log_retention_ms == retention_ms
    assert config.value("log.retention.ms") == retention_ms


@pytest.mark.parametrize("properties", [{"node.id": "7"}, {"broker.id": "7"}, {"node.id": "7", "broker.id": "7"}])
def test_node_id_and_broker_id_are_the_same_setting(properties: dict[str, str]) -> None:
    config = parse_broker_config(properties)
    assert (config.broker_id, config.value("node.id"), config.value("broker.id")) == (7, 7, 7)


@pytest.mark.parametrize(
    ("properties", "name", "allowed"),
    [
        ({"node.id": "1", "broker.id": "2"}, "broker.id", "must be equal to node.id=1"),
        ({"log.retention.ms": "0"}, "log.retention.ms", "must be an integer, at least 1 or -1"),
        ({"log.dirs": "/a,,/b"}, "log.dirs", "must be one or more paths separated by commas, without empty paths"),
        ({"log.dirs": ""}, "log.dirs", "must be one or more paths separated by commas, without empty paths"),
        (
            {"queued.max.request.bytes": "10"},
            "queued.max.request.bytes",
            "must be -1 or at least socket.request.max.bytes=104857600",
        ),
        (
            {"max.connections.per.ip.overrides": f"h:{'9' * 11}"},
            "max.connections.per.ip.overrides",
            "must be text, ADDRESS:COUNT",
        ),
        ({"group.min.session.timeout.ms": "1800001"}, "group.min.session.timeout.ms", "must be at most group.max."),
        ({"log.cleanup.policy": "shred"}, "log.cleanup.policy", "must be a list separated by commas, one of compact"),
        (
            {"metadata.store": "postgres://h/db"},
            "metadata.store",
            "must be text, sqlite:///PATH or kubernetes://NAMESPACE/CLUSTER",
        ),
        ({"metadata.store": "kubernetes://default"}, "metadata.store", "must be text, sqlite:///PATH or kube"),
        ({"metadata.store": "kubernetes://default/a/b"}, "metadata.store", "must be text, sqlite:///PATH or kube"),
        ({"metadata.store": "kubernetes://default/De.mo"}, "metadata.store", "must be text, sqlite:///PATH or kube"),
        ({"log.dirs.placement": "random"}, "log.dirs.placement", "must be text, one of fewest-partitions, least-bytes"),
        ({"process.roles": "controller"}, "process.roles", "must contain broker"),
        (
            {"authorizer.class.name": "a.B"},
            "authorizer.class.name",
            "must be text, one of , org.apache.kafka.metadata.",
        ),
        ({"security.inter.broker.protocol": "TLS"}, "security.inter.broker.protocol", "must be text, one of PLAINTEXT"),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name", "must be one of PLAINTEXT"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "security.inter.broker.protocol",
            "must not be set together with inter.broker.listener.name",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:TLS"},
            "listener.security.protocol.map",
            "must be NAME:PROTOCOL separated by commas, each PROTOCOL one of PLAINTEXT, SSL,",
        ),
        ({"listener.name.x.ssl.client.auth": "yes"}, "listener.name.x.ssl.client.auth", "must be text, one of none,"),
        ({"listener.name.x.ssl.keystore.pass": "yes"}, "listener.name.x.ssl.keystore.pass", "is not a setting of a"),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable", "must be false"),
        ({"listeners": ""}, "listeners", "must name at least one listener"),
        ({"listeners": "localhost:9092"}, "listeners", "must be a list separated by commas, each entry NAME://"),
        ({"listeners": "PLAINTEXT://:99999"}, "listeners", "each entry must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "listeners", "must have a unique name"),
        ({"listeners": "EXTERNAL://:1"}, "listeners", "listener.security.protocol.map must name the protocol"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "must be an address that clients"),
        (
            {"advertised.listeners": "OTHER://h:1"},
            "advertised.listeners",
            "must begin with the name of a listener: PLAINTEXT",
        ),
        ({"advertised.hosts": "PLAINTEXT"}, "advertised.hosts", "must be text, LISTENER:HOST separated by commas"),
        ({"advertised.hosts": "PLAINTEXT:0.0.0.0"}, "advertised.hosts", "must be an address that clients can reach"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name", "must be one of PLAINTEXT"),
        ({"compression.type": "rar"}, "compression.type", "must be text, one of uncompressed, zstd"),
        ({"http.ssl.key.location": "/k"}, "http.ssl.key.location", "must be set together with http.ssl.certificate."),
        (
            {"http.bearer.token.location": "/t"},
            "http.bearer.token.location",
            "must be set together with http.ssl.certificate.location, because without TLS the token would be sent",
        ),
    ],
)
def test_the_error_for_an_invalid_setting_says_what_is_allowed(
    properties: dict[str, str], name: str, allowed: str
) -> None:
    found = problems_of(properties)
    assert list(found) == [name]
    assert found[name].startswith(allowed)


def test_two_listeners_need_different_ports() -> None:
    both = {
        "listeners": "PLAINTEXT://:9092,EXTERNAL://:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
    }
    assert problems_of(both) == {"listeners": "must have a unique port"}
    free = {**both, "listeners": "PLAINTEXT://:0,EXTERNAL://[::1]:0"}
    assert parse_broker_config(free).listeners.bound == (Endpoint("PLAINTEXT", "", 0), Endpoint("EXTERNAL", "::1", 0))


def test_advertised_listeners_have_the_order_of_the_bound_listeners() -> None:
    config = parse_broker_config(
        {
            "listeners": "INTERNAL://:1,EXTERNAL://:2,LOCAL://:3",
            "advertised.listeners": "EXTERNAL://public:9,INTERNAL://private:8",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,LOCAL:PLAINTEXT",
        }
    )
    assert [str(endpoint) for endpoint in config.listeners.advertised] == [
        "INTERNAL://private:8",
        "EXTERNAL://public:9",
        "LOCAL://:3",
    ]
    assert config.listeners.inter_broker == "INTERNAL"


def test_settings_that_switch_a_feature_off_are_accepted() -> None:
    parse_broker_config(
        {"authorizer.class.name": "", "remote.log.storage.system.enable": "FALSE", "config.providers": ""}
    )


def test_a_wildcard_address_is_advertised_as_a_reachable_one() -> None:
    bound = (Endpoint("A", "", 0), Endpoint("B", "0.0.0.0", 9092), Endpoint("C", "public", 9))
    assert list(map(str, reachable(bound, lambda: "box", (4711, 9092, 9093)))) == [
        "A://box:4711",
        "B://box:9092",
        "C://public:9",
    ]


BY_NODE = {
    "listeners": "INSIDE://:1,OUTSIDE://:2",
    "advertised.listeners": "INSIDE://pod:1,OUTSIDE://:30002",
    "advertised.hosts": "outside:10.0.0.7, GONE:10.0.0.9",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def test_advertised_hosts_sets_the_host_of_a_listener_also_at_run_time() -> None:
    config = parse_broker_config(BY_NODE)
    assert list(map(str, config.listeners.advertised)) == ["INSIDE://pod:1", "OUTSIDE://10.0.0.7:30002"]
    config = config.with_usable({"advertised.hosts": "OUTSIDE:fd00::7"}, {}).config
    assert list(map(str, config.listeners.advertised)) == ["INSIDE://pod:1", "OUTSIDE://[fd00::7]:30002"]


def test_dynamic_settings_override_the_file_and_those_of_the_broker_come_first() -> None:
    config = parse_broker_config({"message.max.bytes": "1", "num.partitions": "9"})
    changed, _ = config.with_usable({"message.max.bytes": "3"}, {"message.max.bytes": "2", "log.retention.ms": "5"})
    assert (changed.message_max_bytes, changed.log_retention_ms, changed.num_partitions) == (3, 5, 9)
    assert changed.with_usable({}, {}).config.message_max_bytes == 1
    below, ignored = config.with_usable({"message.max.bytes": "-3"}, {"message.max.bytes": "2"})
    assert below.message_max_bytes == 2
    assert [str(problem) for problem in ignored] == ["message.max.bytes=-3: must be an integer, at least 0"]


def test_a_repeated_log_dir_counts_once() -> None:
    assert parse_broker_config({"log.dirs": "/a,/b, /a"}).log_dirs == ("/a", "/b")
    assert parse_broker_config({"log.dir": "/one"}).log_dirs == ("/one",)


def test_connection_limits_of_single_addresses_are_parsed() -> None:
    config = parse_broker_config({"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7"})
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 5, "::1": 7}


def test_a_broker_config_shows_no_settings_that_may_be_passwords() -> None:
    shown = repr(parse_broker_config({"ssl.key.password": "s3cret", "node.id": "7"}))
    assert "broker_id=7" in shown
    assert "s3cret" not in shown


def test_every_attribute_of_a_broker_config_is_a_setting() -> None:
    config = parse_broker_config({})
    special = {"broker_id", "listeners", "originals", "cluster_overrides", "broker_overrides", "values"}
    for name in set(BrokerConfig.__struct_fields__) - special:
        config.value(name.replace("_", "."))
