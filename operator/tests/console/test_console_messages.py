"""Messages: searches, look-ups, tails, files, and what hostile messages and visitors get."""

import csv
import io
import json
import socket
from contextlib import ExitStack, closing

import pytest
from kafka import KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from barnabas_console.kafka.tail import Tray
from barnabas_console.model.messages import Masking, Message, matches, may_match, message_query, shown, text_of
from harness.console_events import events, read_until
from harness.deadline import wait_for
from harness.running_console import RunningConsole, Secured, Visitor, logged_in

MESSAGES = "/topics/flights/messages"


def test_a_search_returns_messages_as_json_and_how_far_it_was(admin: Visitor) -> None:
    found = admin.json(f"{MESSAGES}?from=start&partition=1")
    assert [each["offset"] for each in found["messages"]] == [0, 1, 2]
    assert found["progress"] == {
        "searched": 3, "total": 3, "found": 3, "dropped": 0, "end": "searched to the end", "is_failed": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("from=start&value=alert", 3),
        ("from=start&value=nothing", 0),
        ("from=-1", 3),
        ("from=2", 3),
        ("from=99", 0),
        ("from=2020-01-01T00:00:00Z", 9),
        ("from=2100-01-01", 0),
        ("from=start&until=2020-01-01", 0),
        ("from=start&limit=2", 2),
        ("from=end", 0),
    ],
)
def test_a_query_selects_by_place_time_and_content(admin: Visitor, query: str, count: int) -> None:
    assert len(admin.json(f"{MESSAGES}?{query}")["messages"]) == count


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=yesterday", ["from=", "yesterday", "start, end, an offset"]),
        ("until=soon", ["until=", "soon", "a time such as"]),
        ("limit=5000", ["limit=", "5000", "from 1 to 1000"]),
        ("partition=3", ["partition=", "3", "from 0 to 2"]),
        ("partition=1&lookup=k", ["partition=", "1", "the key belongs there"]),
        ("format=avro", ["format=", "avro", "auto, text, json, hex"]),
        ("isolation=none", ["isolation=", "none", "read_uncommitted, read_committed"]),
        ("follow=1&download=csv", ["follow=", "1", "a file has an end"]),
        ("follow=1", ["follow=", "1", "/stream"]),
        ("value=" + "x" * 2001, ["value=", "2001 characters", "at most 2000"]),
    ],
)
def test_an_invalid_query_gets_its_field_its_value_and_what_is_allowed(
    admin: Visitor, query: str, words: list[str]
) -> None:
    refused = admin.get(f"{MESSAGES}?{query}", "application/json")
    assert refused.status == 400
    assert all(word in refused.json["error"] for word in words), refused.text


def test_a_key_is_looked_up_in_its_partition_alone(admin: Visitor, console_broker: Secured) -> None:
    console_broker.client().create_topic("keyed", 6)
    with closing(KafkaProducer(bootstrap_servers=console_broker.open)) as producer:
        for number in range(20):
            producer.send("keyed", key=f"key-{number}".encode(), value=b"v")
    wait_for(lambda: admin.get("/topics/keyed").status, lambda status: status == 200)
    found = admin.json("/topics/keyed/messages?from=start&lookup=key-7")
    assert [each["key"] for each in found["messages"]] == ["key-7"]
    assert found["progress"]["total"] < 20


def test_text_of_messages_is_never_markup(console: RunningConsole, admin: Visitor) -> None:
    with events(console, admin, "from=start&partition=0") as answer:
        text = read_until(answer, "event: end")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "ff 00 07 20" in text
    assert "3 found; searched to the end" in text
    page = admin.get(f"{MESSAGES}?value=%22%3E%3Cscript%3E").text
    assert '"><script>' not in page


def test_a_masked_field_is_not_shown_searched_or_exported(admin: Visitor) -> None:
    for form in ("auto", "text", "hex", "json"):
        found = admin.get(f"{MESSAGES}?from=start&format={form}", "application/json").text
        assert "4111" not in found
        assert b"4111".hex(" ") not in found
    assert admin.json(f"{MESSAGES}?from=start&value=4111")["messages"] == []
    assert "4111" not in admin.get(f"{MESSAGES}?from=start&download=jsonl").text


def test_a_masked_field_of_a_key_is_not_shown(admin: Visitor, console_broker: Secured) -> None:
    console_broker.client().create_topic("cards", 1)
    with closing(KafkaProducer(bootstrap_servers=console_broker.open)) as producer:
        producer.send("cards", key=b'{"card": "4111"}', value=b"paid")
    wait_for(lambda: admin.get("/topics/cards").status, lambda status: status == 200)
    (found,) = admin.json("/topics/cards/messages?from=start")["messages"]
    assert (json.loads(found["key"]), found["value"]) == ({"card": "•••"}, "paid")
    assert admin.json("/topics/cards/messages?from=start&key=4111")["messages"] == []


def test_masking_finds_escaped_and_nested_fields_and_hides_what_is_too_large() -> None:
    masking = Masking(frozenset({"card"}))
    assert masking.masked(b'[{"c\\u0061rd": 4111, "x": {"card": [4111]}}]') == (
        '[{"card": "•••", "x": {"card": "•••"}}]'.encode()
    )
    assert b"4111" not in (masking.masked(b'{"card": "4111", "pad": "' + b"x" * (2 << 20) + b'"}') or b"")
    assert masking.masked(b"card 4111") == b"card 4111"


def test_a_tail_shows_what_is_written_and_joins_no_group(
    console: RunningConsole, admin: Visitor, console_broker: Secured
) -> None:
    def groups() -> set[str]:
        return {each["group_id"] for each in admin.json("/groups")["rows"]}

    before = groups()
    with events(console, admin, "from=end&follow=1", "written") as answer:
        read_until(answer, "followed 0")
        console_broker.client().write("written", [b"just now"])
        assert "just now" in read_until(answer, "just now")
    assert groups() == before


def test_a_session_has_four_tails_and_a_visitor_that_leaves_makes_room(console: RunningConsole) -> None:
    visitor, query = logged_in(console, "admin"), "from=end&follow=1"
    with ExitStack() as tails:
        for _ in range(4):
            read_until(tails.enter_context(events(console, visitor, query)), "followed 0")
        refused = visitor.get(f"{MESSAGES}/stream?from=end", "application/json")
        assert (refused.status, "4 of your searches and tails run" in refused.text) == (503, True)
    wait_for(lambda: visitor.get(f"{MESSAGES}?from=end", "application/json").status, lambda status: status == 200)


def test_a_tail_ends_with_its_session(console: RunningConsole) -> None:
    visitor = console.visitor()
    visitor.log_in("admin", "admin-secret")
    visitor.get("/topics")
    with events(console, visitor, "from=end&follow=1") as answer:
        read_until(answer, "followed 0")
        visitor.post("/logout", {"csrf": visitor.csrf})
        read_until(answer, "event: end")


def test_a_search_without_the_right_to_read_says_so(console: RunningConsole, console_broker: Secured) -> None:
    rule = ResourcePattern(ResourceType.TOPIC, "flights")
    with closing(KafkaAdminClient(bootstrap_servers=console_broker.open)) as admin:
        admin.create_acls([ACL("User:dave", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, rule)])
    visitor = console.visitor()
    visitor.log_in("dave", "dave-secret", "SCRAM-SHA-512")
    wait_for(lambda: visitor.get("/topics/flights").status, lambda status: status == 200)
    refused = visitor.get(f"{MESSAGES}?from=start", "application/json")
    assert (refused.status, "TopicAuthorizationFailed" in refused.text) == (502, True), refused.text


def test_files_have_all_that_the_query_finds(admin: Visitor) -> None:
    lines = admin.get(f"{MESSAGES}?from=start&partition=0&download=jsonl")
    assert lines.headers["Content-Disposition"] == 'attachment; filename="flights.jsonl"'
    assert [json.loads(line)["offset"] for line in lines.text.splitlines()] == [0, 1, 2]
    table = admin.get(f"{MESSAGES}?from=start&partition=0&download=csv").text
    assert [row["offset"] for row in csv.DictReader(io.StringIO(table))] == ["0", "1", "2"]


def test_a_text_that_a_spreadsheet_would_compute_is_made_harmless(admin: Visitor, console_broker: Secured) -> None:
    console_broker.client().write("written", [b"=HYPERLINK(1)"])
    assert "'=HYPERLINK(1)" in admin.get("/topics/written/messages?from=start&value=HYPERLINK&download=csv").text


def test_a_large_message_is_cut_and_says_its_size() -> None:
    row = shown(Message(0, 0, 0, b"\xff" * 10, b"x" * 10_000_000, [("h", None)]), "auto")
    assert len(row.value or "") == 4096
    assert row.cut == ("value: 10,000,000 bytes",)
    assert (row.key, row.headers) == ("ff ff ff ff ff ff ff ff ff ff", (("h", None),))


def test_characters_that_change_how_text_is_read_are_marked() -> None:
    assert text_of("a\u202eb\x1bc".encode(), "text") == "a\ufffdb\ufffdc"
    assert text_of(b'{"a": "\\u202e"}', "json").count("\ufffd") == 1


def test_a_full_tray_drops_the_oldest_rows_and_counts_them() -> None:
    tray = Tray[int](3, 100, waits=False)
    for number in range(5):
        tray.put(number, 1)
    tray.put(5, 99)
    assert (tray.take(9), tray.dropped) == ([4, 5], 4)


def test_a_message_outside_of_the_filter_does_not_match() -> None:
    query = message_query({"header": "trace=ab", "until": "1970-01-01T00:00:01"})
    message = Message(0, 0, 999, None, None, [("trace", b"abc")])
    assert matches(message, query)
    assert may_match(message, query)
    assert not may_match(message._replace(timestamp_ms=1000), query)
    assert not matches(message._replace(headers=()), query)


def test_a_visitor_that_hangs_does_not_keep_others_waiting(console: RunningConsole, admin: Visitor) -> None:
    with socket.create_connection(("127.0.0.1", console.process.port)) as silent:
        silent.sendall(b"GET /topics HTTP/1.1\r\nHost: local")
        assert admin.get("/topics").status == 200


def test_a_browser_gets_the_reason_of_a_refused_tail_as_an_event(console: RunningConsole) -> None:
    answer = console.visitor().get(f"{MESSAGES}/stream?follow=1", "text/event-stream")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert answer.text.startswith("event: progress\ndata: ")
    assert "the session has ended; log in again" in answer.text
    assert answer.text.endswith("event: end\ndata: \n\n")
