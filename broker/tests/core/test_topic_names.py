"""Topic names: legal ones, and ones that collide."""

import pytest

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import KnownNames, check_topic_name, is_internal


@pytest.mark.parametrize("name", ["a", "flights", "A.b_c-9", "__consumer_offsets", "...", "a" * 249])
def test_legal_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "the empty string"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("a" * 250, "is 250; at most 249"),
        ("a b", "'a b' contains"),
        ("a/b", "'a/b' contains"),
        ("日本", "'日本' contains"),
        ("a\n", "contains"),
    ],
)
def test_illegal_names_are_refused_with_the_reason(name: str, complaint: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("name", "others", "found"),
    [
        ("a.b", ["a_b"], "a_b"),
        ("a_b", ["x", "a.b"], "a.b"),
        ("a.b_c", ["a_b.c"], "a_b.c"),
        ("a.b", ["a.b"], None),
        ("a-b", ["a_b"], None),
        ("ab", ["a.b"], None),
    ],
)
def test_names_that_differ_only_in_dots_and_underscores_collide(
    name: str, others: list[str], found: str | None
) -> None:
    assert KnownNames(others).colliding(name) == found
    known = KnownNames(others[:1])
    for other in others[1:]:
        assert known.colliding("nobody_has.this") is None
        known.add(other)
    assert known.colliding(name) == found


def test_only_the_brokers_own_topics_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__mine")
