"""Patterns of transactional ids from clients (KIP-1152), matched in time in proportion to the id.

Kafka has RE2 for that. Python's `re` tries one way after the other, so that one pattern of a client could keep the
broker busy for ever. These patterns have no groups, so all ways through them are followed at once.
"""

import re
from typing import Final, NamedTuple

PARTS_MAX: Final = 64
ID_CHARS_MAX: Final = 256
"""A longer id fits no pattern: following one takes a few milliseconds at most."""
ALLOWED: Final = (
    f"at most {PARTS_MAX} characters, '.', classes such as [a-z] or \\d, each with *, + or ? behind it or none,"
    " and | between alternatives; \\ before all others"
)
_PART: Final = re.compile(
    r"(?P<bar>\|)|(?P<one>\\[dDsSwW]|\\[^A-Za-z0-9]|\[\^?(?:\\.|[^\\\[\]])+\]|[^\\\[\](){}|*+?^$])(?P<times>[*+?]?)",
    re.DOTALL,
)


class _Part(NamedTuple):
    """One character of a pattern: which ones it may be, and whether it may come often, or be left out."""

    one: re.Pattern[str]
    may_repeat: bool = False
    may_lack: bool = False


class IdPattern:
    """A pattern that whole ids fit or do not fit."""

    def __init__(self, text: str) -> None:
        """Raise ValueError, which says what is allowed."""
        self._alternatives: list[list[_Part]] = [[]]
        position = 0
        while position < len(text):
            match = _PART.match(text, position)
            if match is None or sum(map(len, self._alternatives)) >= PARTS_MAX:
                raise ValueError(f"{text[position:][:PARTS_MAX]}: allowed: {ALLOWED}")
            position = match.end()
            if match["bar"]:
                self._alternatives.append([])
            else:
                self._alternatives[-1] += _parts(match["one"], match["times"])

    def fits(self, name: str) -> bool:
        """Return whether the whole id fits."""
        return len(name) <= ID_CHARS_MAX and any(_fits(parts, name) for parts in self._alternatives)


def _parts(one: str, times: str) -> list[_Part]:
    try:
        compiled = re.compile(one, re.ASCII)
    except re.error as error:
        raise ValueError(f"{one}: {error}; allowed: {ALLOWED}") from None
    often = _Part(compiled, may_repeat=True, may_lack=True)
    return {"": [_Part(compiled)], "?": [_Part(compiled, may_lack=True)], "*": [often], "+": [_Part(compiled), often]}[
        times
    ]


def _fits(parts: list[_Part], name: str) -> bool:
    """Follow all places before which a part may come next; the last one is behind them all."""
    places = _with_lacking(parts, {0})
    for character in name:
        reached = set()
        for place in places:
            if place < len(parts) and parts[place].one.fullmatch(character):
                reached.add(place if parts[place].may_repeat else place + 1)
        places = _with_lacking(parts, reached)
    return len(parts) in places


def _with_lacking(parts: list[_Part], places: set[int]) -> set[int]:
    """Return the places, and those behind parts that may be left out."""
    found = set(places)
    for place, part in enumerate(parts):
        if place in found and part.may_lack:
            found.add(place + 1)
    return found
