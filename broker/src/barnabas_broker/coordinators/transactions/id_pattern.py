"""The patterns of transactional ids in ListTransactions (KIP-1152), matched in linear time.

Kafka uses RE2. Python's `re` backtracks, so a client's pattern could block the broker for ever. The patterns allowed
here have no groups, so that matching can follow all possible positions in the pattern at once.
"""

import re
from typing import Final, NamedTuple

PARTS_MAX: Final = 64
ID_CHARS_MAX: Final = 256
"""The maximum length of an id that can match a pattern, so that a match takes a few milliseconds at most."""
ALLOWED: Final = (
    f"a pattern has at most {PARTS_MAX} parts; a part is a character, '.' or a class such as [a-z] or \\d, and may be"
    " followed by *, + or ?; | separates alternatives, and \\ escapes a special character"
)
_PART: Final = re.compile(
    r"(?P<bar>\|)|(?P<one>\\[dDsSwW]|\\[^A-Za-z0-9]|\[\^?(?:\\.|[^\\\[\]])+\]|[^\\\[\](){}|*+?^$])(?P<times>[*+?]?)",
    re.DOTALL,
)


class _Part(NamedTuple):
    """A part of a pattern: it matches one character; several if `may_repeat` is True, or none if `may_lack` is True."""

    one: re.Pattern[str]
    may_repeat: bool = False
    may_lack: bool = False


class IdPattern:
    """A pattern that matches whole transactional ids."""

    def __init__(self, text: str) -> None:
        """Compile the pattern. Raises ValueError if the pattern is not allowed."""
        self._alternatives: list[list[_Part]] = [[]]
        position = 0
        while position < len(text):
            match = _PART.match(text, position)
            if match is None or sum(map(len, self._alternatives)) >= PARTS_MAX:
                raise ValueError(f"the pattern is not supported from {text[position:][:PARTS_MAX]} on: {ALLOWED}")
            position = match.end()
            if match["bar"]:
                self._alternatives.append([])
            else:
                self._alternatives[-1] += _parts(match["one"], match["times"])

    def fits(self, name: str) -> bool:
        """True if the pattern matches the whole transactional id; an id of more than ID_CHARS_MAX never matches."""
        return len(name) <= ID_CHARS_MAX and any(_fits(parts, name) for parts in self._alternatives)


def _parts(one: str, times: str) -> list[_Part]:
    try:
        compiled = re.compile(one, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern contains the invalid part {one}: {error}; {ALLOWED}") from None
    often = _Part(compiled, may_repeat=True, may_lack=True)
    return {"": [_Part(compiled)], "?": [_Part(compiled, may_lack=True)], "*": [often], "+": [_Part(compiled), often]}[
        times
    ]


def _fits(parts: list[_Part], name: str) -> bool:
    """True if the pattern with these parts matches the whole transactional id `name`.

    `places` has the index of each part that may match the next character. The index `len(parts)` stands for the end of
    the pattern.
    """
    places = _with_lacking(parts, {0})
    for character in name:
        reached = set()
        for place in places:
            if place < len(parts) and parts[place].one.fullmatch(character):
                reached.add(place if parts[place].may_repeat else place + 1)
        places = _with_lacking(parts, reached)
    return len(parts) in places


def _with_lacking(parts: list[_Part], places: set[int]) -> set[int]:
    """Return `places`, and the indexes of the parts that come next if parts that may match no character are skipped."""
    found = set(places)
    for place, part in enumerate(parts):
        if place in found and part.may_lack:
            found.add(place + 1)
    return found
