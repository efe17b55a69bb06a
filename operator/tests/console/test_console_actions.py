"""Actions with `--write`, and what other sites, forged cookies and forms of nobody get."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from harness.deadline import wait_for
from harness.running_console import Answered, RunningConsole, Secured, StartConsole, Visitor


def act(visitor: Visitor, path: str, fields: Mapping[str, str], *, confirmed: bool) -> Answered:
    """Send the form of an action with the token that its page has."""
    assert visitor.get(path).status == 200
    confirming = {"confirmed": "1"} if confirmed else {}
    return visitor.post(path, {**fields, "csrf": visitor.csrf, **confirming})


def topic(visitor: Visitor, name: str) -> Any:
    return visitor.json(f"/topics/{name}")


@pytest.fixture(scope="module")
def own(console_broker: Secured, admin: Visitor) -> str:
    """Return a topic of two partitions with three records each, and a group that has read one of each."""
    client = console_broker.client()
    client.create_topic("own", 2)
    for number in range(2):
        client.write("own", [b"1", b"2", b"3"], number)
    client.commit("own-group", *(TopicPartition("own", number, 1) for number in range(2)))
    wait_for(lambda: admin.get("/groups/own-group").status, lambda status: status == 200)
    return "own"


def test_an_action_shows_cluster_object_and_effect_before_it_happens(admin: Visitor, own: str) -> None:
    shown = act(admin, f"/topics/{own}/partitions", {"count": "3"}, confirmed=False)
    assert shown.status == 200
    assert "gets 1 partitions more, 3 instead of 2" in shown.text
    cluster = admin.json("/")["cluster_id"]
    assert f"<strong>{cluster}</strong>" in shown.text
    assert "as <strong>admin</strong>" in shown.text
    assert len(topic(admin, own)["partitions"]) == 2


def test_partitions_are_added_with_one_audit_line(console: RunningConsole, admin: Visitor, own: str) -> None:
    done = act(admin, f"/topics/{own}/partitions", {"count": "3"}, confirmed=True)
    assert (done.status, "Done." in done.text) == (200, True), done.text
    wait_for(lambda: len(topic(admin, own)["partitions"]), lambda count: count == 3)
    lines = [line for line in console.log().splitlines() if "action=topic-partitions" in line]
    assert len(lines) == 1
    assert all(part in lines[0] for part in ("object='own'", "user='admin'", "3 instead of 2", "result='done'"))


def test_a_config_is_set_and_removed(admin: Visitor, own: str) -> None:
    path, found = f"/topics/{own}/config", {"name": "retention.ms", "value": "60000"}

    def retention() -> tuple[str, str]:
        one = next(each for each in topic(admin, own)["configs"] if each["name"] == "retention.ms")
        return one["value"], one["source"]

    assert act(admin, path, found, confirmed=True).status == 200
    wait_for(retention, lambda value: value == ("60000", "topic"))
    assert act(admin, path, {"name": "retention.ms", "default": "1"}, confirmed=True).status == 200
    wait_for(retention, lambda value: value[1] == "default")
    refused = act(admin, path, {"name": "retention.ms", "value": "soon"}, confirmed=True)
    assert refused.status == 409
    assert "retention.ms" in refused.text


def test_a_reset_has_the_present_offsets_and_shows_what_it_skips(admin: Visitor, own: str) -> None:
    path = "/groups/own-group/reset"
    assert "own 0 1" in admin.get(path).text
    shown = act(admin, path, {"to": "latest"}, confirmed=False)
    assert "skips 4 records and reads 0 again" in shown.text
    assert "own-0: 1 → 3" in shown.text
    assert act(admin, path, {"to": "offsets", "offsets": "own 0 2\nown 1 0"}, confirmed=True).status == 200
    wait_for(
        lambda: [(each["partition"], each["committed"]) for each in admin.json("/groups/own-group")["lags"]][:2],
        lambda found: found == [(0, 2), (1, 0)],
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"to": "noon"}, ["to=", "noon", "offsets, earliest, latest"]),
        ({"to": "shiftBy", "value": "x"}, ["value=", "x", "a whole number"]),
        ({"to": "datetime", "value": "2100-01-01T00:00:00Z"}, ["in the future"]),
        ({"to": "offsets", "offsets": "own 0"}, ["offsets=", "own 0", "3 words"]),
        ({"to": "earliest", "topics": "missing"}, ["missing"]),
        ({"colour": "red"}, ["colour=", "only the fields to, value"]),
    ],
)
def test_an_invalid_reset_gets_its_field_its_value_and_what_is_allowed(
    admin: Visitor, own: str, fields: dict[str, str], words: list[str]
) -> None:
    refused = act(admin, "/groups/own-group/reset", fields, confirmed=True)
    assert refused.status in (400, 409)
    assert all(word in refused.text.replace("&#39;", "'") for word in words), refused.text


def test_records_are_deleted_up_to_an_offset(admin: Visitor, own: str) -> None:
    path = f"/topics/{own}/delete-records"
    shown = act(admin, path, {"before": "1 2"}, confirmed=False)
    assert "own-1: the 2 records before offset 2 are deleted for ever." in shown.text
    assert act(admin, path, {"before": "1 2"}, confirmed=True).status == 200
    wait_for(lambda: topic(admin, own)["partitions"][1]["start"], lambda start: start == 2)
    assert act(admin, path, {"before": "1 99"}, confirmed=True).status == 400


def test_one_message_is_produced(admin: Visitor, own: str) -> None:
    fields = {"partition": "0", "key": "k", "value": "<b>made</b>", "headers": "trace=1"}
    assert act(admin, f"/topics/{own}/produce", fields, confirmed=True).status == 200
    (found,) = admin.json(f"/topics/{own}/messages?from=start&value=made")["messages"]
    assert (found["key"], found["value"], found["headers"]) == ("k", "<b>made</b>", [["trace", "1"]])
    assert act(admin, f"/topics/{own}/produce", {"headers": "trace"}, confirmed=True).status == 400


def test_a_visitor_without_the_right_is_refused_by_the_brokers(carol: Visitor) -> None:
    refused = act(carol, "/topics/flights/partitions", {"count": "9"}, confirmed=True)
    assert (refused.status, "AuthorizationFailed" in refused.text) == (502, True), refused.text


def test_a_change_that_fails_has_an_audit_line_with_the_reason(console: RunningConsole, carol: Visitor) -> None:
    refused = act(carol, "/topics/flights/delete-records", {"before": "0 1"}, confirmed=True)
    assert (refused.status, "AuthorizationFailed" in refused.text) == (502, True), refused.text
    (line,) = [line for line in console.log().splitlines() if "action=topic-delete-records" in line and "carol" in line]
    assert "records before offset 1 are deleted" in line
    assert re.search(r"result='the brokers refuse: .*TopicAuthorizationFailed", line), line


def test_a_form_of_another_site_or_of_no_session_is_refused(admin: Visitor, own: str) -> None:
    path = f"/topics/{own}/partitions"
    fields = {"count": "9", "confirmed": "1"}
    assert admin.post(path, fields).status == 403
    assert admin.post(path, {**fields, "csrf": "guess"}).status == 403
    admin.get(path)
    right = {**fields, "csrf": admin.csrf}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert admin.post(path, right, **headers).status == 403
    assert admin.post("/logout", {"csrf": "guess"}).status == 403


def test_a_forged_cookie_is_no_session(console: RunningConsole, admin: Visitor) -> None:
    for forged in ("barnabas_console=own.x", "barnabas_console=", admin.cookie[:-1] + "x", "barnabas_console=é"):
        visitor = console.visitor()
        visitor.cookie = forged.encode().decode("latin-1")
        assert visitor.get("/topics").status == 303


def test_a_name_that_another_site_gave_to_this_machine_is_refused(admin: Visitor) -> None:
    assert admin.get("/topics", Host="rebound.example").status == 421


def test_each_answer_has_the_headers_that_keep_scripts_out(console: RunningConsole, admin: Visitor) -> None:
    for path in ("/topics", "/login", "/missing", "/static/htmx.min.js", "/topics?page=x"):
        headers = admin.get(path).headers
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    page = admin.get("/topics").text
    assert not re.search(r"<script(?![^>]* src=)|\son[a-z]+=|style=", page)
    visitor = console.visitor()
    cookie = visitor.log_in("admin", "admin-secret").headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/"))


def test_without_write_there_is_no_action(console_broker: Secured, start_console: StartConsole) -> None:
    visitor = start_console(console_broker.open).visitor()
    wait_for(lambda: visitor.get("/topics/flights").status, lambda status: status == 200)
    assert visitor.get("/topics/flights/partitions").status == 404
    assert visitor.post("/topics/flights/partitions", {"count": "9"}).status == 404
    assert "Add partitions" not in visitor.get("/topics/flights").text
