"""What a user may do with a resource, and the rule that decides, by the rules of Kafka's StandardAuthorizer."""

import pytest

from barnabas_console.html import users as pages
from barnabas_console.html.frame import Frame
from barnabas_console.model.details import UserRow
from barnabas_console.model.inputs import InvalidInput, Part, list_query
from barnabas_console.model.rights import Rule, checked_host, resources_of, rights_to, word
from barnabas_core.acls import (
    AclEntry,
    AclOperation,
    AclPattern,
    AclSubject,
    PatternType,
    Permission,
    ResourceType,
)

ALICE = AclSubject("User:alice", "")
BYTES_MAX = 1 << 20


def rule(text: str) -> Rule:
    """Return the rule of a text such as `allow read topic literal orders User:alice *`."""
    permission, operation, kind, pattern, name, principal, host = text.split()
    return (
        AclPattern(ResourceType[kind.upper()], name, PatternType[pattern.upper()]),
        AclEntry(principal, host, AclOperation[operation.upper()], Permission[permission.upper()]),
    )


def resource(text: str) -> AclPattern:
    kind, name = text.split()
    return AclPattern(ResourceType[kind.upper()], name, PatternType.LITERAL)


@pytest.mark.parametrize(
    ("rules", "about", "operation", "decision", "by"),
    [
        (["allow read topic literal orders User:alice *"], "topic orders", "read", "allowed", 0),
        (["allow read topic literal orders User:alice *"], "topic orders", "write", "denied", None),
        (["allow read topic literal orders User:alice *"], "topic orders-1", "read", "no rule", None),
        (["allow read topic literal orders User:alice *"], "group orders", "read", "no rule", None),
        (["allow read topic literal orders User:bob *"], "topic orders", "read", "denied", None),
        (["allow read topic literal orders User:* *"], "topic orders", "read", "allowed", 0),
        (["allow write topic prefixed orders- User:alice *"], "topic orders-1", "write", "allowed", 0),
        (["allow write topic prefixed orders- User:alice *"], "topic orders-", "write", "allowed", 0),
        (["allow write topic prefixed orders- User:alice *"], "topic orders", "write", "no rule", None),
        (["allow read group literal * User:alice *"], "group any", "read", "allowed", 0),
        (["allow read group prefixed * User:alice *"], "group any", "read", "no rule", None),
        (["allow read topic literal orders User:alice *"], "topic orders", "describe", "allowed", 0),
        (["allow delete topic literal orders User:alice *"], "topic orders", "describe", "allowed", 0),
        (["allow create topic literal orders User:alice *"], "topic orders", "describe", "denied", None),
        (["allow alter_configs topic literal orders User:alice *"], "topic orders", "describe configs", "allowed", 0),
        (["allow all topic literal orders User:alice *"], "topic orders", "alter", "allowed", 0),
        (["allow all cluster literal kafka-cluster User:alice *"], "cluster kafka-cluster", "create", "allowed", 0),
        (["allow write transactional_id prefixed pay User:alice *"], "transactional_id pay-1", "write", "allowed", 0),
        (
            ["allow read topic literal * User:alice *", "deny read topic literal orders User:alice *"],
            "topic orders",
            "read",
            "denied",
            1,
        ),
        (
            ["allow read topic literal orders User:alice *", "deny all topic prefixed ord User:* *"],
            "topic orders",
            "read",
            "denied",
            1,
        ),
        (
            ["allow read topic literal orders User:alice *", "deny read topic literal orders User:alice *"],
            "topic orders",
            "describe",
            "allowed",
            0,
        ),
        (
            ["allow read topic literal orders User:alice *", "deny read topic literal orders User:alice 10.0.0.1"],
            "topic orders",
            "read",
            "allowed",
            0,
        ),
    ],
)
def test_a_decision_names_the_rule_behind_it(
    rules: list[str], about: str, operation: str, decision: str, by: int | None
) -> None:
    rows = rights_to([resource(about)], ALICE, list(map(rule, rules)))
    (found,) = [each for each in rows if operation in each.operations]
    assert found.decision == decision
    if by is None:
        assert found.rule is None
    else:
        pattern, entry = rule(rules[by])
        assert found.rule is not None
        assert (found.rule.resource, found.rule.pattern) == (pattern.name, word(pattern.pattern_type))
        assert (found.rule.operation, found.rule.principal) == (word(entry.operation), entry.principal)


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1"])
def test_a_rule_for_a_host_counts_for_a_client_there(host: str) -> None:
    asker = AclSubject("User:alice", checked_host(host))
    (found, *_) = rights_to(
        [resource("topic orders")], asker, [rule("deny all topic literal orders User:alice 10.0.0.1")]
    )
    assert (found.decision, found.rule is not None) == ("denied", True)


def test_a_host_that_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"host='example'; allowed: an IP address"):
        checked_host("example")


def test_all_operations_of_a_resource_are_decided_once() -> None:
    rows = rights_to([resource("topic orders")], ALICE, [rule("allow read topic literal orders User:alice *")])
    assert [(each.decision, each.operations) for each in rows] == [
        ("allowed", ("read", "describe")),
        ("denied", ("write", "create", "delete", "alter", "describe configs", "alter configs")),
    ]


def test_resources_are_those_that_are_seen_or_named_by_rules_and_all_others() -> None:
    rules = ["allow read topic prefixed orders- User:alice *", "allow read topic literal hers User:bob *"]
    found = resources_of(list(map(rule, rules)), ALICE, ["flights"], ["billing"])
    assert [(word(each.resource_type), each.name, word(each.pattern_type)) for each in found] == [
        ("topic", "*", "literal"),
        ("topic", "flights", "literal"),
        ("topic", "orders-", "prefixed"),
        ("group", "*", "literal"),
        ("group", "billing", "literal"),
        ("cluster", "kafka-cluster", "literal"),
        ("transactional id", "*", "literal"),
        ("delegation token", "*", "literal"),
        ("user", "*", "literal"),
    ]


@pytest.mark.parametrize("length", [20, 249])
def test_the_page_of_a_thousand_resources_is_below_a_megabyte(length: int) -> None:
    topics = [f"{number:05d}{'x' * (length - 5)}" for number in range(1_000)]
    rules = [rule(f"allow read topic literal {each} User:alice *") for each in topics]
    rows = list(rights_to([resource(f"topic {each}") for each in topics], ALICE, rules))
    query = list_query({"size": "1000"}, pages.RIGHTS_SORTS)
    part = Part(rows, 1_000, 1_000, 1)
    page = pages.user(Frame("", "", "/"), UserRow("alice", (), 1_000, ""), [], query, part, "")
    assert len(str(page).encode()) < BYTES_MAX
