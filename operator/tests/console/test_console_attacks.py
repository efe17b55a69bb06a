"""Visitors whose rights end, names and messages that look like markup, a crowd that tails, and a broker that hangs."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from barnabas_console.app.collectors import LOGIN_S, Collector, CollectorSettings
from barnabas_console.app.sessions import Principal
from barnabas_kafka.command_config import LoginConfig
from barnabas_kafka.connection import connected_client
from harness.barnabas_server import prepare_barnabas
from harness.console_events import events, read_until
from harness.deadline import PATIENCE_S, wait_for
from harness.running_console import RunningConsole, Secured, StartConsole, Visitor, logged_in
from harness.server_process import ServerProcess

SCRAM = "SCRAM-SHA-512"
MARKUP = "</td><script>alert('x')</script>/../é"
CONTROLS = b"\x00\x1b[31m\x07\xe2\x80\xae\xff"


def add_user(broker: Secured, name: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.open)) as admin:
        password = UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_512, f"{name}-secret")
        admin.alter_user_scram_credentials([password])


def allow(broker: Secured, name: str, topic: str, *operations: ACLOperation) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    with closing(KafkaAdminClient(bootstrap_servers=broker.open)) as admin:
        admin.create_acls([ACL(f"User:{name}", "*", each, ACLPermissionType.ALLOW, pattern) for each in operations])


def forbid(broker: Secured, name: str) -> None:
    every = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    with closing(KafkaAdminClient(bootstrap_servers=broker.open)) as admin:
        admin.delete_acls([ACLFilter(f"User:{name}", "*", ACLOperation.ANY, ACLPermissionType.ANY, every)])


def open_transaction(broker: Secured, topic: str) -> None:
    """Leave a transaction open in a new topic; it ends after 15 minutes."""
    broker.client().create_topic(topic, 1)
    settings = {"bootstrap.servers": broker.open, "transactional.id": f"pay-{topic}"}
    producer = Producer({**settings, "transaction.timeout.ms": 900_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided")
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def erin(console: RunningConsole, console_broker: Secured) -> Visitor:
    """Return a visitor who may read `paid`, and only describe `owed`; both have an open transaction."""
    for topic in ("paid", "owed"):
        open_transaction(console_broker, topic)
    add_user(console_broker, "erin")
    allow(console_broker, "erin", "paid", ACLOperation.READ, ACLOperation.DESCRIBE)
    allow(console_broker, "erin", "owed", ACLOperation.DESCRIBE)
    visitor = console.visitor()
    assert visitor.log_in("erin", "erin-secret", SCRAM).status == 303
    return visitor


def test_a_partition_that_may_not_be_read_hides_no_other_transaction(erin: Visitor, admin: Visitor) -> None:
    def rows(visitor: Visitor) -> list[tuple[str, str, str | None]]:
        found = visitor.json("/transactions")["transactions"]
        return sorted(
            (each["topic"], each["state"], each["why"]) for each in found if each["topic"] in ("paid", "owed")
        )

    wait_for(lambda: rows(admin), lambda some: some == [("owed", "open", None), ("paid", "open", None)])
    assert rows(erin) == [("owed", "not read", "no right"), ("paid", "unknown", None)]
    page = erin.get("/transactions").text
    assert '<em class="unknown">no right</em>' in page
    assert "pay-owed" not in page


def test_rights_that_are_taken_away_end_a_tail_and_hide_the_topics(
    console: RunningConsole, console_broker: Secured
) -> None:
    console_broker.client().create_topic("lent", 1)
    add_user(console_broker, "frank")
    allow(console_broker, "frank", "lent", ACLOperation.READ)
    visitor = console.visitor()
    assert visitor.log_in("frank", "frank-secret", SCRAM).status == 303
    assert [each["name"] for each in visitor.json("/topics")["rows"]] == ["lent"]
    with events(console, visitor, "from=end&follow=1", "lent") as answer:
        read_until(answer, "followed 0")
        forbid(console_broker, "frank")
        console_broker.client().write("lent", [b"for others"])
        text = read_until(answer, "event: end")
    assert "TopicAuthorizationFailed" in text
    assert "for others" not in text
    wait_for(lambda: visitor.json("/topics")["rows"], lambda rows: rows == [])
    assert visitor.get("/topics/lent/messages?from=start", "application/json").status == 404


def test_a_user_without_its_password_is_refused_after_a_minute(console_broker: Secured, tmp_path: Path) -> None:
    add_user(console_broker, "grace")
    file, clock_s = tmp_path / "client.properties", [0.0]
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    credentials = LoginConfig(file, SCRAM, "grace", "grace-secret")
    connect = partial(connected_client, console_broker.bootstrap, 5.0, "test")
    collector = Collector(
        Principal("grace", "g", credentials),
        CollectorSettings(connect, lambda: clock_s[0], 0.05, lambda: datetime.now(UTC)),
    )

    def is_refused() -> bool:
        collector.refresh()  # The clock may move during a round, whose pause is then long.
        return collector.is_refused

    collector.start()
    try:
        wait_for(lambda: collector.sight.snapshot)
        with closing(KafkaAdminClient(bootstrap_servers=console_broker.open)) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("grace", ScramMechanism.SCRAM_SHA_512)])
        clock_s[0] = LOGIN_S
        wait_for(is_refused)
        assert "Authentication" in collector.sight.failure
        wait_for(lambda: collector.is_over)
    finally:
        collector.stop()


def test_names_of_others_are_never_markup(admin: Visitor, console_broker: Secured) -> None:
    client = console_broker.client()
    client.create_topic("javascript.alert-1", 1, {"retention.ms": "60000"})
    client.commit(MARKUP, TopicPartition("javascript.alert-1", 0, 0))
    add_user(console_broker, "<img src=x>")
    found = wait_for(lambda: admin.json("/groups?search=script")["rows"])
    assert [each["group_id"] for each in found] == [MARKUP]
    path = "/groups/%3C%2Ftd%3E%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E%2F..%2F%C3%A9"
    for page in ("/groups?search=script", "/topics/javascript.alert-1", path, "/users", "/groups/%3Cscript%3E"):
        text = admin.get(page).text
        assert "<script>" not in text
        assert "<img" not in text
    assert path in admin.get("/groups?search=script").text
    assert admin.get(path).status == 200


def test_keys_with_control_characters_and_ten_megabytes_are_shown_in_bounds(
    console: RunningConsole, admin: Visitor, console_broker: Secured
) -> None:
    console_broker.client().create_topic("heavy", 1, {"max.message.bytes": "12000000"})
    producer = Producer({"bootstrap.servers": console_broker.open, "message.max.bytes": 12_000_000})
    value = b"<b>" + b"x" * 10_000_000
    producer.produce("heavy", key=CONTROLS, value=value, headers=[("\x1b", CONTROLS)])
    assert producer.flush(PATIENCE_S) == 0
    wait_for(lambda: admin.get("/topics/heavy").status, lambda status: status == 200)
    (found,) = admin.json("/topics/heavy/messages?from=start&format=text")["messages"]
    assert (found["key"], len(found["value"])) == ("\ufffd\ufffd[31m\ufffd\ufffd\ufffd", 4096)
    assert found["cut"] == ["value: 10,000,003 bytes"]
    with events(console, admin, "from=start", "heavy") as answer:
        text = read_until(answer, "event: end")
    assert len(text) < 20_000
    assert "00 1b 5b 33 31 6d 07" in text
    assert not [each for each in text if not each.isprintable() and each != "\n"]


def test_a_crowd_that_tails_leaves_room_for_pages(console: RunningConsole) -> None:
    visitors = [logged_in(console, "admin") for _ in range(9)]
    with ExitStack() as tails:
        for number in range(32):
            answer = tails.enter_context(events(console, visitors[number // 4], "from=end&follow=1"))
            assert answer.status == 200
        refused = visitors[8].get("/topics/flights/messages/stream?from=end", "application/json")
        assert (refused.status, "32 of all visitors" in refused.text) == (503, True)
        assert visitors[8].get("/topics").status == 200
    wait_for(
        lambda: visitors[8].get("/topics/flights/messages?from=end", "application/json").status,
        lambda status: status == 200,
    )


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[ServerProcess]:
    """Return a broker of its own, which a test stops for a while."""
    process = prepare_barnabas(tmp_path, {"offsets.topic.replication.factor": "1"})
    try:
        process.start()
        yield process
        assert process.stop() == 0
    finally:
        process.close()


def test_a_broker_that_hangs_keeps_no_page_that_is_known_and_no_tail_for_ever(
    hanging: ServerProcess, start_console: StartConsole
) -> None:
    Secured(hanging, "").client().create_topic("flights", 1)
    console = start_console(hanging.bootstrap)
    visitor = console.visitor()
    wait_for(lambda: visitor.get("/topics/flights").status, lambda status: status == 200)
    hanging.pause()
    try:
        began = time.monotonic()
        assert visitor.get("/topics").status == 200
        assert visitor.get("/healthz").status == 200
        assert time.monotonic() - began < 5
        found = visitor.json("/topics/flights")
        assert (len(found["partitions"]), found["configs"]) == (1, None)
        assert "the brokers refuse" in found["failure"]
        searched = visitor.get("/topics/flights/messages?from=start", "application/json")
        assert (searched.status, "the brokers refuse" in searched.text) == (502, True)
        wait_for(lambda: "requests to the brokers failed" in visitor.get("/topics").text)
    finally:
        hanging.resume()
    wait_for(lambda: visitor.get("/topics/flights").status, lambda status: status == 200)
