"""The rules of Kafka's authorizer against a model that tries every ACL."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.security.authorizer import LINES_MAX, Audit, Authorizer, super_users
from barnabas_core.acls import (
    AclEntry,
    AclIndex,
    AclOperation,
    AclPattern,
    AclSubject,
    PatternType,
    Permission,
    ResourceType,
    plain_host,
)
from harness.manual_clock import ManualClock
from harness.soak import size

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE = AclSubject("User:alice", "10.0.0.1")

Acl = tuple[AclPattern, AclEntry]

names = st.sampled_from(["*", "a", "ab", "abc", "b"])
patterns = st.builds(
    AclPattern,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
operations = st.sampled_from(list(AclOperation)[2:])
entries = st.builds(
    AclEntry,
    st.sampled_from(["User:alice", "User:*", "User:bob", "Group:alice"]),
    st.sampled_from(["*", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"]),
    operations,
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
acls = st.lists(st.tuples(patterns, entries), max_size=8)


def index_of(some: list[Acl]) -> AclIndex:
    index = AclIndex()
    for pattern, _ in some:
        index.put(pattern, {entry for other, entry in some if other == pattern})
    return index


def is_about(pattern: AclPattern, kind: ResourceType, name: str) -> bool:
    if pattern.resource_type is not kind:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def naive(some: list[Acl], operation: AclOperation, kind: ResourceType, name: str, if_none: bool) -> bool:
    about = [entry for pattern, entry in some if is_about(pattern, kind, name)]
    mine = [
        each
        for each in about
        if each.principal in ("User:alice", "User:*") and each.host in ("*", "10.0.0.1", "::ffff:10.0.0.1")
    ]
    gives = {operation, AclOperation.ALL}
    denied = any(each.permission is Permission.DENY and each.operation in gives for each in mine)
    if operation is AclOperation.DESCRIBE:
        gives |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        gives |= {AclOperation.ALTER_CONFIGS}
    allowed = any(each.permission is Permission.ALLOW and each.operation in gives for each in mine)
    return not denied and (allowed if about else if_none)


@settings(max_examples=size(80, 3_000), deadline=None)
@given(acls, operations, names, st.booleans())
def test_an_index_decides_like_a_search_of_all_acls(
    some: list[Acl], operation: AclOperation, name: str, if_none: bool
) -> None:
    decided = index_of(some).allows(ALICE, operation, TOPIC, name, if_none=if_none)
    assert decided == naive(some, operation, TOPIC, name, if_none)


@settings(max_examples=size(80, 2_000), deadline=None)
@given(acls, st.data())
def test_removing_an_acl_does_not_affect_other_acls(some: list[Acl], data: st.DataObject) -> None:
    index = index_of(some)
    for pattern in {pattern for pattern, _ in some}:
        if data.draw(st.booleans()):
            index.put(pattern, ())
            some = [each for each in some if each[0] != pattern]
    assert {(pattern, entry) for pattern, of_it in index.patterns() for entry in of_it} == set(some)
    for name in ("a", "abc", "b", "*"):
        for operation in (AclOperation.READ, AclOperation.DESCRIBE):
            decided = index.allows(ALICE, operation, TOPIC, name, if_none=True)
            assert decided == naive(some, operation, TOPIC, name, True)
    for operation in (AclOperation.READ, AclOperation.WRITE):
        assert index.allows_any(ALICE, operation, TOPIC) == index_of(some).allows_any(ALICE, operation, TOPIC)


@settings(max_examples=size(80, 3_000), deadline=None)
@given(acls)
def test_a_right_on_any_topic_exists_exactly_if_some_topic_name_has_it(some: list[Acl]) -> None:
    shown = any(
        naive(some, AclOperation.WRITE, TOPIC, name, False)
        for name in ("a", "ab", "abc", "b", "abcd", "abd", "ac", "bc", "zz", "*", "**")
    )
    assert index_of(some).allows_any(ALICE, AclOperation.WRITE, TOPIC) == shown


def test_a_check_for_a_right_on_any_topic_reads_no_acls_of_other_users() -> None:
    looks: list[AclEntry] = []

    class Entries(list[AclEntry]):
        def __iter__(self) -> Iterator[AclEntry]:
            looks.extend(self[:])
            return super().__iter__()

    index = AclIndex()
    for number in range(100):
        entry = AclEntry(f"User:{number}", "*", AclOperation.WRITE, Permission.ALLOW)
        index.put(AclPattern(TOPIC, f"t{number}", PatternType.LITERAL), Entries([entry]))
    looks.clear()
    assert index.allows_any(AclSubject("User:7", "10.0.0.1"), AclOperation.WRITE, TOPIC)
    assert {each.principal for each in looks} == {"User:7"}


def test_all_notations_of_a_host_are_equal() -> None:
    assert {plain_host(host) for host in ("::1", "0:0:0:0:0:0:0:1", "[::1]", "0::1")} == {"::1"}
    assert plain_host("::ffff:127.0.0.1") == "127.0.0.1"
    assert plain_host("example.org") == "example.org"


def test_super_users_are_allowed_operations_that_are_denied_to_all() -> None:
    users = super_users("User:CN=a,O=b; User:admin ;")
    assert users == ["User:CN=a,O=b", "User:admin"]
    authorizer = Authorizer(users, allow_if_none=False, audit=Audit(ManualClock()))
    deny = AclEntry("User:*", "*", AclOperation.ALL, Permission.DENY)
    authorizer.replace({AclPattern(TOPIC, "*", PatternType.LITERAL): [deny]})
    assert authorizer.rights("User:CN=a,O=b", "::1").may(AclOperation.WRITE, TOPIC, "t")
    assert not authorizer.rights("User:alice", "::1").may(AclOperation.WRITE, TOPIC, "t")


def test_a_decision_is_cached_until_an_acl_changes() -> None:
    authorizer = Authorizer((), allow_if_none=False, audit=Audit(ManualClock()))
    before = authorizer.rights("User:alice", "10.0.0.1")
    assert not before.may(AclOperation.READ, TOPIC, "t")
    assert not before.may_any(AclOperation.READ, TOPIC)
    pattern = AclPattern(TOPIC, "t", PatternType.LITERAL)
    authorizer.replace({pattern: [AclEntry("User:alice", "10.0.0.1", AclOperation.READ, Permission.ALLOW)]})
    after = authorizer.rights("User:alice", "10.0.0.1")
    assert after.may(AclOperation.READ, TOPIC, "t")
    assert after.may_any(AclOperation.READ, TOPIC)
    assert after is authorizer.rights("User:alice", "10.0.0.1")
    assert after.operations(TOPIC, "t") == {AclOperation.READ, AclOperation.DESCRIBE}


def test_a_flood_of_refusals_is_counted_and_logged_in_part(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    audit = Audit(clock)
    with caplog.at_level("INFO", "kafka.authorizer.logger"):
        for number in range(LINES_MAX + 7):
            audit.refused(ALICE, AclOperation.READ, TOPIC, f"t{number}\n")
        clock.pass_time(2)
        audit.refused(ALICE, AclOperation.READ, TOPIC, "last")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LINES_MAX + 2
    assert "is Denied operation = READ from host = 10.0.0.1 on resource = TOPIC:'t0\\n'" in lines[0]
    assert lines[-2] == "7 more refusals were not logged"
    assert audit.refusals.total() == LINES_MAX + 8
