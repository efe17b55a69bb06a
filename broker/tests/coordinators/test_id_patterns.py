"""Patterns of transactional ids match as Python's patterns do, but always in bounded time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.transactions.id_pattern import ID_CHARS_MAX, PARTS_MAX, IdPattern

PARTS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", r"[\]a]", "-"])
TIMES = st.sampled_from(["", "*", "+", "?"])
ALTERNATIVES = st.lists(st.lists(st.tuples(PARTS, TIMES), max_size=5), min_size=1, max_size=3)


@given(ALTERNATIVES, st.text("ab.1-]", max_size=8))
def test_a_pattern_matches_the_same_ids_as_pythons_pattern(
    alternatives: list[list[tuple[str, str]]], name: str
) -> None:
    text = "|".join("".join(one + times for one, times in each) for each in alternatives)
    assert IdPattern(text).fits(name) == (re.fullmatch(text, name, re.ASCII) is not None)


def test_matching_ends_for_a_pattern_that_takes_python_exponential_time() -> None:
    pattern = IdPattern("a?" * (PARTS_MAX // 2) + "a*" * (PARTS_MAX // 2 - 1) + "!")
    assert not pattern.fits("a" * ID_CHARS_MAX)


@pytest.mark.parametrize("text", [r"(\w|\w\w?|-)*!", "a{2}", "[b-a]", "a**", r"\1", "[", "a" * (PARTS_MAX + 1)])
def test_the_error_for_an_unsupported_pattern_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="a pattern has at most 64 parts"):
        IdPattern(text)
