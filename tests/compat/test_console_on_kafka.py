"""The pages of the console that any Kafka has, at Apache Kafka: the same as at Barnabas."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from kafka import KafkaProducer

from drivers.broker_under_test import PROPERTIES, check_end, prepare_server
from harness.deadline import wait_for
from harness.running_console import RunningConsole, Visitor
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

pytestmark = pytest.mark.xdist_group("apache-kafka")
PAGES = ("/", "/topics", "/topics/flights", "/groups", "/groups/billing", "/groups/modern", "/transactions")


@pytest.fixture(scope="module", params=["kafka", pytest.param("barnabas", marks=pytest.mark.soak(only=True))])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = prepare_server(request.param, tmp_path_factory.mktemp(request.param), PROPERTIES)
    server.start()
    try:
        _fill(StockClient(server.bootstrap))
        yield server
        check_end(request.param, server)
    finally:
        server.close()


def _fill(client: StockClient) -> None:
    client.create_topic("flights", 2, {"retention.ms": "86400000"})
    with closing(KafkaProducer(bootstrap_servers=client.settings["bootstrap.servers"])) as producer:
        for number in range(10):
            producer.send("flights", key=b"key-%d" % number, value=b'{"flight": %d}' % number, headers=[("h", b"1")])
    client.commit("billing", TopicPartition("flights", 0, 0), TopicPartition("flights", 1, 0))


@pytest.fixture(scope="module")
def visitor(cluster: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    console = RunningConsole(cluster.bootstrap, tmp_path_factory.mktemp("console"), "--write")
    try:
        console.process.start()
        yield console.visitor()
        assert console.process.stop() == 0, console.log()
        assert "Traceback" not in console.log(), console.log()
    finally:
        console.process.close()


@pytest.fixture(scope="module")
def member(cluster: ServerProcess) -> Iterator[Consumer]:
    """Yield a member of a group of the consumer protocol that has been assigned its partitions."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "modern", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe(["flights"])
        wait_for(lambda: (consumer.poll(0.1), len(consumer.assignment()))[1], lambda count: count == 2)
        consumer.commit(offsets=[TopicPartition("flights", number, 0) for number in range(2)], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_each_page_is_shown_and_no_request_fails(visitor: Visitor, member: Consumer) -> None:
    assert len(member.assignment()) == 2
    wait_for(lambda: visitor.get("/groups/modern").status, lambda status: status == 200)
    for path in PAGES:
        page = visitor.get(path)
        assert page.status == 200, page
        assert "requests to the brokers failed" not in page.text, page.text
    (broker,) = visitor.json("/")["brokers"]
    assert (broker["leads"] > 0, isinstance(broker["size"], int), broker["log_dirs"][0]["error"]) == (True, True, "")
    (row,) = wait_for(lambda: visitor.json("/topics?search=flights")["rows"], lambda rows: rows[0]["lag"] == 20)
    assert (row["partitions"], row["records"], row["groups"]) == (2, 10, 2)


def test_groups_have_their_kind_their_state_and_their_members(visitor: Visitor, member: Consumer) -> None:
    assert len(member.assignment()) == 2
    modern = wait_for(lambda: visitor.json("/groups/modern"), lambda found: found["state"] == "Stable")
    assert (modern["group_type"], len(modern["members"][0]["partitions"])) == ("consumer", 2)
    classic = visitor.json("/groups/billing")
    assert (classic["group_type"], classic["state"], classic["lag"]) == ("classic", "Empty", 10)


def test_a_topic_has_configs_with_their_source_and_messages(visitor: Visitor) -> None:
    found = visitor.json("/topics/flights")
    retention = next(each for each in found["configs"] if each["name"] == "retention.ms")
    assert (retention["value"], retention["source"]) == ("86400000", "topic")
    assert {"read", "write", "alter configs"} <= set(found["rights"])
    messages = visitor.json("/topics/flights/messages?from=start&lookup=key-7")["messages"]
    assert [(each["key"], each["headers"]) for each in messages] == [("key-7", [["h", "1"]])]
    assert "flight" in visitor.get("/topics/flights/messages?from=start&download=csv").text


def test_actions_change_partitions_configs_and_offsets(visitor: Visitor, cluster: ServerProcess) -> None:
    def act(path: str, fields: dict[str, str]) -> int:
        visitor.get(path)
        return visitor.post(path, {**fields, "csrf": visitor.csrf, "confirmed": "1"}).status

    assert act("/topics/flights/config", {"name": "retention.ms", "value": "3600000"}) == 200
    assert act("/groups/billing/reset", {"to": "latest"}) == 200
    wait_for(lambda: visitor.json("/groups/billing")["lag"], lambda lag: lag == 0)
    client = StockClient(cluster.bootstrap)
    described = client.admin.describe_configs([ConfigResource(ResourceType.TOPIC, "flights")])
    (configs,) = [each.result(30) for each in described.values()]
    assert configs["retention.ms"].value == "3600000"
    assert act("/topics/flights/partitions", {"count": "3"}) == 200
    wait_for(lambda: len(visitor.json("/topics/flights")["partitions"]), lambda count: count == 3)
    users = visitor.get("/users", "application/json")
    assert users.status == 200 or "Security" in users.text, users
