"""Patterns of transactional ids: they fit as Python's own do, whatever a client sends."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.transactions.id_pattern import ID_CHARS_MAX, PARTS_MAX, IdPattern

PARTS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", r"[\]a]", "-"])
TIMES = st.sampled_from(["", "*", "+", "?"])
ALTERNATIVES = st.lists(st.lists(st.tuples(PARTS, TIMES), max_size=5), min_size=1, max_size=3)


@given(ALTERNATIVES, st.text("ab.1-]", max_size=8))
def test_an_id_fits_as_it_fits_pythons_pattern(alternatives: list[list[tuple[str, str]]], name: str) -> None:
    text = "|".join("".join(one + times for one, times in each) for each in alternatives)
    assert IdPattern(text).fits(name) == (re.fullmatch(text, name, re.ASCII) is not None)


def test_a_pattern_that_pythons_matching_would_never_end_with_ends() -> None:
    pattern = IdPattern("a?" * (PARTS_MAX // 2) + "a*" * (PARTS_MAX // 2 - 1) + "!")
    assert not pattern.fits("a" * ID_CHARS_MAX)


@pytest.mark.parametrize("text", [r"(\w|\w\w?|-)*!", "a{2}", "[b-a]", "a**", r"\1", "[", "a" * (PARTS_MAX + 1)])
def test_what_is_no_such_pattern_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="a pattern has at most 64 parts"):
        IdPattern(text)
