"""The settings of a broker that runs in place of Apache Kafka's image."""

import pytest

from barnabas_broker.app.kafka_image import broker_properties
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import InvalidConfig

COMPOSE = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,PLAINTEXT_HOST://:29092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092,PLAINTEXT_HOST://localhost:29092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:9093",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
}


def values(variables: dict[str, str], mounted: str = "") -> dict[str, str]:
    return {name: each.value for name, each in broker_properties(variables, mounted).items()}


def test_the_variables_of_a_compose_file_are_settings_that_a_broker_accepts() -> None:
    config = parse_broker_config(broker_properties({**COMPOSE, "PATH": "/bin"}, ""))
    assert [str(each) for each in config.listeners.advertised] == [
        "PLAINTEXT://broker:9092",
        "PLAINTEXT_HOST://localhost:29092",
    ]
    assert config.broker_id == 1
    assert config.value("cluster.id") == COMPOSE["CLUSTER_ID"]


def test_listeners_are_derived_from_those_that_are_advertised() -> None:
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092,SECOND://localhost:29092"}
    assert values(advertised)["listeners"] == "PLAINTEXT://0.0.0.0:9092,SECOND://0.0.0.0:29092"


def test_variables_replace_properties_of_the_mounted_file() -> None:
    found = values({"KAFKA_NUM_PARTITIONS": "7"}, "num.partitions=3\nnode.id=5\n")
    assert found == {"num.partitions": "7", "node.id": "5"}


def test_a_broker_without_variables_and_file_listens_on_localhost() -> None:
    found = values({"KAFKA_HEAP_OPTS": "-Xmx1G"})
    assert found["advertised.listeners"] == "PLAINTEXT://localhost:9092"


def test_variables_that_are_no_settings_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert values({"KAFKA_NODE_ID": "1", "KAFKA_OF_ANOTHER_PRODUCT": "x"}) == {"node.id": "1"}
    assert "of.another.product" in caplog.text


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"KAFKA_PROCESS_ROLES": "controller"}, "process.roles"),
        ({"KAFKA_NODE_ID": "4", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093"}, "controller.quorum.voters"),
        ({"KAFKA_NODE_ID": "1", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093"}, "controller.quorum.voters"),
    ],
)
def test_a_node_of_a_cluster_of_several_is_refused_without_a_store_that_they_share(
    variables: dict[str, str], name: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}="):
        values(variables)
    assert name in values({**variables, "KAFKA_METADATA_STORE": "sqlite:////shared/metadata.sqlite"})
