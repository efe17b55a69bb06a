"""The pages that show: logins and rights, lists, figures that are not known, JSON."""

import base64
import re

import pytest

from harness.deadline import wait_for
from harness.running_console import RunningConsole, Secured, StartConsole, Visitor


def test_a_visitor_without_a_session_is_sent_to_the_login_and_then_to_the_page(console: RunningConsole) -> None:
    visitor = console.visitor()
    sent = visitor.get("/topics?search=fl")
    assert (sent.status, sent.headers["Location"]) == (303, "/login?back=%2Ftopics%3Fsearch%3Dfl")
    assert visitor.log_in("admin", "admin-secret", back="/topics?search=fl").headers["Location"] == "/topics?search=fl"
    assert visitor.get("/topics?search=fl").status == 200


def test_a_login_by_scram_is_accepted(console: RunningConsole) -> None:
    visitor = console.visitor()
    assert visitor.log_in("dave", "dave-secret", "SCRAM-SHA-512").status == 303
    assert "as dave" in visitor.get("/topics").text


def test_a_login_with_a_wrong_password_gets_the_reason_and_no_cookie(console: RunningConsole) -> None:
    visitor = console.visitor()
    refused = visitor.log_in("admin", "guess")
    assert refused.status == 401
    assert "the brokers refuse the login" in refused.text
    assert visitor.cookie == ""
    assert "guess" not in console.log()


def test_a_login_does_not_lead_to_another_site(console: RunningConsole) -> None:
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        assert console.visitor().log_in("admin", "admin-secret", back=back).headers["Location"] == "/"


def test_the_list_of_topics_has_groups_and_lag_in_one_row(admin: Visitor) -> None:
    (row,) = admin.json("/topics?search=flights")["rows"]
    assert (row["name"], row["partitions"], row["records"], row["groups"], row["lag"]) == ("flights", 3, 9, 1, 6)
    assert row["size"] > 0
    page = admin.get("/topics").text
    assert re.search(r'<a href="/topics/flights">flights</a>', page)


def test_a_visitor_sees_only_what_its_acls_allow_and_the_rest_is_not_0(carol: Visitor) -> None:
    found = carol.json("/topics")
    assert [each["name"] for each in found["rows"]] == ["flights"]
    assert found["rows"][0]["size"] == "no right"
    assert "other" not in carol.get("/topics").text
    assert carol.get("/topics/other").status == 404
    assert carol.json("/")["moving"] == "no right"


def test_lists_are_sorted_searched_and_cut_by_the_server(admin: Visitor) -> None:
    for descending, expected in (("1", ["flights", "other"]), ("0", ["other", "flights"])):
        names = [each["name"] for each in admin.json(f"/topics?sort=records&desc={descending}")["rows"]]
        assert [name for name in names if name in expected] == expected
    assert "__consumer_offsets" in [each["name"] for each in admin.json("/topics?all=1")["rows"]]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/topics?sort=colour", ["sort=", "colour", "allowed: name, partitions"]),
        ("/topics?page=-1", ["page=", "-1", "a whole number from 1 to 1000000"]),
        ("/topics?size=7", ["size=", "7", "allowed: 50, 200, 1000"]),
        ("/topics?x=1", ["x=", "1", "only the fields search"]),
        ("/topics?page=1&page=2", ["page=", "2", "one text"]),
        ("/topics/missing", ["there is no topic missing"]),
        ("/groups/missing", ["there is no group missing"]),
        ("/users/carol?host=example", ["host=", "example", "an IP address"]),
    ],
)
def test_an_invalid_address_gets_its_field_its_value_and_what_is_allowed(
    admin: Visitor, path: str, words: list[str]
) -> None:
    refused = admin.get(path, "application/json")
    assert refused.status in (400, 404)
    assert all(word in refused.json["error"] for word in words), refused.text


def test_a_topic_shows_partitions_configs_with_their_source_and_rights(admin: Visitor, carol: Visitor) -> None:
    found = admin.json("/topics/flights")
    assert [each["end"] for each in found["partitions"]] == [3, 3, 3]
    retention = next(each for each in found["configs"] if each["name"] == "retention.ms")
    assert retention["source"] == "default"
    assert {"read", "describe"} <= set(carol.json("/topics/flights")["rights"])
    assert "write" not in carol.json("/topics/flights")["rights"]
    assert "TopicAuthorizationFailed" in carol.get("/topics/flights").text


def test_a_group_shows_its_state_and_the_lag_of_each_partition(admin: Visitor) -> None:
    found = admin.json("/groups/billing")
    assert (found["group_type"], found["state"], found["lag"]) == ("classic", "Empty", 6)
    assert [(each["committed"], each["end"], each["lag"]) for each in found["lags"]] == [(1, 3, 2)] * 3
    assert "Lag of each partition" in admin.get("/groups/billing").text


def test_users_and_their_rules_are_shown_to_those_who_may_see_them(admin: Visitor, carol: Visitor) -> None:
    assert {each["name"] for each in admin.json("/users")["rows"]} >= {"carol", "dave"}
    rules = admin.json("/users/carol")["acls"]
    assert {each["operation"] for each in rules} == {"read", "describe"}
    page = admin.get("/users/carol").text
    assert "allow read on this name for User:carol" in page
    assert "brokers do not tell them: a super user" in page
    refused = carol.get("/users", "application/json")
    assert (refused.status, refused.json["error"]) == (502, "the brokers refuse: CLUSTER_AUTHORIZATION_FAILED (31)")


def test_rights_of_a_user_are_those_that_the_brokers_give_it(admin: Visitor, carol: Visitor) -> None:
    def allowed(topic: str) -> set[str]:
        rows = admin.json(f"/users/carol?search={topic}&size=1000")["rows"]
        named = [each for each in rows if (each["resource_type"], each["resource"]) == ("topic", topic)]
        return {name for each in named if each["decision"] == "allowed" for name in each["operations"]}

    assert allowed("flights") == set(carol.json("/topics/flights")["rights"]) == {"read", "describe"}
    assert allowed("other") == set()


def test_a_user_that_brokers_do_not_know_has_the_rights_of_all_users(admin: Visitor) -> None:
    found = admin.json("/users/CN=loader?host=10.0.0.1")
    assert (found["name"], found["mechanisms"], found["acls"], found["host"]) == ("CN=loader", [], [], "10.0.0.1")
    assert {each["decision"] for each in found["rows"]} == {"denied", "no rule"}
    assert "No rule names this user" in admin.get("/users/CN=loader").text


def test_scripts_log_in_by_basic(console: RunningConsole) -> None:
    visitor = console.visitor()
    wrong = base64.b64encode(b"dave:guess").decode()
    assert visitor.get("/topics", "application/json").status == 401
    assert visitor.get("/topics", "application/json", Authorization=f"Basic {wrong}").status == 401
    assert visitor.get("/topics", "application/json", Authorization="Basic ???").status == 400
    right = base64.b64encode(b"dave:dave-secret").decode()
    assert "other" not in [each["name"] for each in visitor.json("/topics", Authorization=f"Basic {right}")["rows"]]


def test_logging_out_ends_the_session_on_the_server(console: RunningConsole) -> None:
    visitor = console.visitor()
    visitor.log_in("admin", "admin-secret")
    visitor.get("/topics")
    kept = visitor.cookie
    assert visitor.post("/logout", {"csrf": visitor.csrf}).status == 303
    visitor.cookie = kept
    assert visitor.get("/topics").status == 303


def test_a_console_with_its_own_account_says_as_whom_it_looks(
    console_broker: Secured, start_console: StartConsole
) -> None:
    visitor = start_console(console_broker.open, "--path-prefix", "/kafka").visitor()
    page = visitor.get("/kafka/topics")
    assert page.status == 200
    assert "as nobody, because this cluster asks for no login" in page.text
    assert 'href="/kafka/topics/flights"' in page.text
    assert visitor.get("/topics").status == 404
    assert (
        wait_for(lambda: visitor.json("/kafka/topics?search=flights")["rows"][0]["rate"], lambda rate: rate == 0) == 0
    )


def test_an_open_page_without_a_session_is_led_to_the_login(console: RunningConsole) -> None:
    answer = console.visitor().get("/topics?sort=lag", **{"HX-Request": "true"})
    assert (answer.status, answer.headers["HX-Redirect"]) == (401, "/login?back=%2Ftopics%3Fsort%3Dlag")
