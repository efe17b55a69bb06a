"""The pages of the console that any Kafka has, at Apache Kafka: the same as at Barnabas."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import ConfigResource
from kafka import KafkaProducer
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from drivers.broker_under_test import PROPERTIES, check_end, prepare_server
from harness.deadline import PATIENCE_S, wait_for
from harness.running_console import RunningConsole, Secured, Visitor
from harness.server_process import ServerProcess, free_port
from harness.stock_client import StockClient

pytestmark = pytest.mark.xdist_group("apache-kafka")
PAGES = ("/", "/topics", "/topics/flights", "/groups", "/groups/billing", "/groups/modern", "/transactions", "/users")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECURITY = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
MECHANISM = "SCRAM-SHA-512"


@pytest.fixture(scope="module", params=["kafka", pytest.param("barnabas", marks=pytest.mark.soak(only=True))])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker where everybody is a super user at one address, and users log in at the other."""
    address = f"127.0.0.1:{free_port()}"
    folder, listeners = tmp_path_factory.mktemp(request.param), [f"SASL_PLAINTEXT://{address}"]
    server = prepare_server(request.param, folder, {**PROPERTIES, **SECURITY}, listeners)
    server.start()
    try:
        _fill(StockClient(server.bootstrap))
        yield Secured(server, address)
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
def cluster(broker: Secured) -> ServerProcess:
    return broker.process


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
    described = client.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "flights")])
    (configs,) = [each.result(30) for each in described.values()]
    assert configs["retention.ms"].value == "3600000"
    assert act("/topics/flights/partitions", {"count": "3"}) == 200
    wait_for(lambda: len(visitor.json("/topics/flights")["partitions"]), lambda count: count == 3)
    client.create_topic("short", 1)
    wait_for(lambda: visitor.get("/topics/short").status, lambda status: status == 200)
    for _ in range(3):
        assert act("/topics/short/produce", {"key": "k", "value": "v", "headers": "a=b"}) == 200
    wait_for(lambda: visitor.json("/topics/short")["partitions"][0]["end"], lambda end: end == 3)
    assert act("/topics/short/delete-records", {"before": "0 2"}) == 200
    wait_for(lambda: visitor.json("/topics/short")["partitions"][0]["start"], lambda start: start == 2)


def test_a_share_group_has_members_a_lag_and_the_topic_of_its_dead_letters(
    visitor: Visitor, cluster: ServerProcess
) -> None:
    client = StockClient(cluster.bootstrap)
    client.create_topic("parcels", 2)
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": "workers", "client.id": "worker"})
    try:
        consumer.subscribe(["parcels"])

        def seen() -> Any:
            for number in range(2):
                client.write("parcels", [b"one"], number)
            consumer.poll(timeout=0.5)
            answer = visitor.get("/groups/workers", "application/json")
            return answer.json if answer.status == 200 else {"lag": None}

        workers = wait_for(seen, lambda found: isinstance(found["lag"], int))
        assert (workers["group_type"], workers["failures"]) == ("share", [])
        (member,) = workers["members"]
        assert (workers["state"], member["client_id"], len(member["partitions"])) == ("Stable", "worker", 2)
        assert {each["partition"]: each["client_id"] for each in workers["lags"]} == {0: "worker", 1: "worker"}
        assert "share.record.lock.duration.ms" in {each["name"] for each in workers["detail"]["configs"]}
        assert "Dead letters" in visitor.get("/groups/workers").text
    finally:
        consumer.close()
    wait_for(lambda: visitor.json("/groups/workers")["state"], lambda state: state == "Empty")
    (row,) = [each for each in visitor.json("/groups")["rows"] if each["group_id"] == "workers"]
    assert (row["group_type"], row["members"]) == ("share", 0)


def test_an_open_transaction_is_shown_with_its_id_and_what_it_holds_back(
    visitor: Visitor, cluster: ServerProcess
) -> None:
    StockClient(cluster.bootstrap).create_topic("paid", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("paid", b"undecided")
    assert producer.flush(PATIENCE_S) == 0
    (row,) = wait_for(lambda: visitor.json("/transactions")["transactions"])
    assert (row["topic"], row["state"], row["transactional_id"], row["held_back"]) == ("paid", "open", "pay", 1)
    producer.abort_transaction(PATIENCE_S)
    wait_for(lambda: visitor.json("/transactions")["transactions"] == [])


def test_a_visitor_has_the_rights_of_its_user_and_others_see_by_which_rule(
    visitor: Visitor, broker: Secured, tmp_path: Path
) -> None:
    flights = ResourcePattern(ResourceType.TOPIC, "flights")
    with closing(KafkaAdminClient(bootstrap_servers=broker.open)) as admin:
        password = UserScramCredentialUpsertion("dave", ScramMechanism.SCRAM_SHA_512, "dave-secret")
        admin.alter_user_scram_credentials([password])
        admin.create_acls([ACL("User:dave", "*", ACLOperation.READ, ACLPermissionType.ALLOW, flights)])
    found = visitor.json("/users/dave")
    assert (found["mechanisms"], len(found["acls"])) == ([MECHANISM], 1)
    rule = found["acls"][0]
    assert (rule["permission"], rule["operation"], rule["resource"], rule["pattern"]) == (
        "allow",
        "read",
        "flights",
        "literal",
    )
    (tmp_path / "client.properties").write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n")
    console = RunningConsole(broker.bootstrap, tmp_path, "--command-config", str(tmp_path / "client.properties"))
    console.process.start()
    try:
        dave = console.visitor()
        assert dave.log_in("dave", "wrong", MECHANISM).status == 401
        assert wait_for(lambda: dave.log_in("dave", "dave-secret", MECHANISM).status == 303)
        (row,) = dave.json("/topics")["rows"]
        assert (row["name"], row["size"], dave.json("/")["moving"]) == ("flights", "no right", "no right")
        assert set(dave.json("/topics/flights")["rights"]) == _allowed(found, "flights") == {"describe", "read"}
        assert dave.json("/groups")["rows"] == []
        assert dave.json("/topics/flights/messages?from=start")["messages"]
        # The page of users is left out: Apache Kafka did not answer its requests within 10 s to a user without rights.
        assert dave.get("/topics/short").status == 404
        assert console.process.stop() == 0
    finally:
        console.process.close()


def _allowed(user: Any, topic: str) -> set[str]:
    """Return the operations that a user may do with a topic, as the page of the user says."""
    rows = [each for each in user["rows"] if (each["resource_type"], each["resource"]) == ("topic", topic)]
    return {operation for each in rows if each["decision"] == "allowed" for operation in each["operations"]}
