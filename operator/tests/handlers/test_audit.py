"""A watch that has ended without a word is noticed by what it did not tell."""

import pytest

from barnabas_operator.handlers.audit import Listed, gone_between, missed_between

CASES: dict[str, tuple[Listed, Listed, Listed, list[str]]] = {
    "all is told": ({"a": 1}, {"a": 1}, {"a": 1}, []),
    "a change that is told": ({"a": 1}, {"a": 2}, {"a": 2}, []),
    "a change that is underway": ({"a": 1}, {"a": 2}, {"a": 1}, []),
    "a change that was there before and is not told": ({"a": 2}, {"a": 2}, {"a": 1}, ["a"]),
    "one that was there before and is not told at all": ({"a": 1}, {"a": 1}, {}, ["a"]),
    "one that came just now": ({}, {"a": 1}, {}, []),
}
GONE: dict[str, tuple[Listed, Listed, Listed, list[str]]] = {
    "one that is there": ({"a": 1}, {"a": 1}, {"a": 1}, []),
    "one that came just now, and it was told": ({}, {}, {}, []),
    "one that went, and it was told": ({"a": 1}, {}, {}, []),
    "one that went just now": ({"a": 1}, {}, {"a": 1}, []),
    "one that was gone before and is not told": ({}, {}, {"a": 1}, ["a"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_so_before_and_is_not_known_yet_was_missed(name: str) -> None:
    before, now, known, missed = CASES[name]
    assert missed_between(before, now, known) == missed


@pytest.mark.parametrize("name", GONE)
def test_what_was_gone_before_and_is_still_thought_to_be_there_is_told(name: str) -> None:
    before, now, known, gone = GONE[name]
    assert gone_between(before, now, known) == gone
