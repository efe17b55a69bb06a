"""Patterns of names match as Python's patterns do, but always in bounded time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.modern.consumer_heartbeat import resolve, topic_pattern
from barnabas_broker.coordinators.name_patterns import NAME_CHARS_MAX, TEXT_CHARS_MAX, NamePattern
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import at_once
from harness.soak import size, took

PARTS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", r"[\]a]", "-", "(?:ab|b)", "a{2}"])
TIMES = st.sampled_from(["", "*", "+", "?"])
ALTERNATIVES = st.lists(st.lists(st.tuples(PARTS, TIMES), max_size=5), min_size=1, max_size=3)
INVALID = ["[", "(", "a**", r"\1", "(?=a)", "x{1001}", "[b-a]"]
TOO_LARGE = ["a" * (TEXT_CHARS_MAX + 1), "[^x]{1000}", r"(\pL+[a-z]*){300}!", "(?:a?){1000}b{10}"]


@given(ALTERNATIVES, st.text("ab.1-]", max_size=8))
def test_a_pattern_matches_the_same_names_as_pythons_pattern(
    alternatives: list[list[tuple[str, str]]], name: str
) -> None:
    text = "|".join("".join(one + times for one, times in each) for each in alternatives)
    text = text.replace("a{2}", "(?:a{2})")
    assert NamePattern(text).fits(name) == (re.fullmatch(text, name, re.ASCII) is not None)


@pytest.mark.parametrize("text", [r"(\w|\w\w?|-)*!", "(?:a?){900}b", "(.*){200}y"])
def test_a_match_ends_soon_for_the_worst_patterns(text: str) -> None:
    pattern = NamePattern(text)
    began = time.monotonic()
    assert not pattern.fits("a" * NAME_CHARS_MAX)
    took(f"matching {text}", time.monotonic() - began, 0.05)


@pytest.mark.parametrize(
    "text", ["(?i)Orders.*", "(?i)orders.*", r"\bord.*", ".*s-1", "(?s).*", "orders-1|x", "(?m)^o.*"]
)
def test_a_pattern_matches_names_at_both_ends_of_the_range_that_it_may_match(text: str) -> None:
    assert NamePattern(text).fits("orders-1")
    assert NamePattern(text).fits("ORDERS-1") == text.startswith(("(?i)", "(?s)"))


def test_few_of_many_names_are_matched_if_the_pattern_begins_with_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[bytes] = []
    pattern = NamePattern("orders-.*")
    fullmatch = pattern._compiled.fullmatch

    class Counting:
        def fullmatch(self, name: bytes) -> object:
            matched.append(name)
            return fullmatch(name)

    monkeypatch.setattr(pattern, "_compiled", Counting())
    names = [f"{word}-{number}" for word in ("flights", "orders", "zebras") for number in range(300)]
    assert at_once(pattern.fitting(names)) == names[300:600]
    assert len(matched) == 300


def test_a_pattern_matches_only_the_whole_name() -> None:
    pattern = NamePattern("orders|returns")
    assert [pattern.fits(name) for name in ("orders", "orders-1", "my-returns", "returns")] == [
        True,
        False,
        False,
        True,
    ]


def test_a_name_above_the_limit_never_matches() -> None:
    assert not NamePattern(".*").fits("a" * (NAME_CHARS_MAX + 1))


@pytest.mark.parametrize("text", INVALID + TOO_LARGE)
def test_the_error_for_an_invalid_pattern_names_it(text: str) -> None:
    with pytest.raises(ApiError) as raised:
        topic_pattern(text)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert str(raised.value).startswith(f"SubscribedTopicRegex `{text[:256]}` is not a valid regular expression: ")


def test_an_invalid_stored_pattern_resolves_to_no_topic() -> None:
    assert at_once(resolve(["(", "b.*"], ["a", "b1", "b2"])) == {"(": [], "b.*": ["b1", "b2"]}


def test_resolving_takes_steps_that_do_not_grow() -> None:
    topics = [f"team{number % 37}.orders-{number:05}" for number in range(10_000)]
    texts = [f"team{number}\\..*-0+[0-9]*" for number in range(size(5, 100))]
    steps, longest_s, began = resolve(texts, topics), 0.0, time.monotonic()
    count = 0
    while True:
        step_began = time.monotonic()
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        longest_s, count = max(longest_s, time.monotonic() - step_began), count + 1
    assert (len(found), len(found["team0\\..*-0+[0-9]*"])) == (len(texts), 271)
    assert count >= len(texts) * len(topics) // 100
    took(f"matching {len(topics)} topics by {len(texts)} expressions", time.monotonic() - began, 30)
    took("the longest step", longest_s, 0.05)
