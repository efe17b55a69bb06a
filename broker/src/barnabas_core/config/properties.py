"""Java's properties file format, read exactly: comments, continued lines, escapes and the three separators.

After `java.util.Properties.load`: a comment line cannot be continued, a key ends at the first unescaped `=`, `:` or
blank, and of a key that comes twice the last one counts. The package javaproperties reads empty continued lines
otherwise.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Property(NamedTuple):
    """A value and the number, from 1, of the line on which it begins."""

    value: str
    line: int


class MalformedProperties(ValueError):
    """The text is no properties file; the message has the line."""


def parse_properties(text: str) -> dict[str, Property]:
    """All properties by key. Raises MalformedProperties for a malformed `\\uXXXX`, the only thing that can be wrong."""
    properties = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "an empty key matches, too"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "an empty separator matches, too"
        value = _unescape(line[separator.end() :], number)
        properties[_unescape(key.group(), number)] = Property(value, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, leading blanks off, without comments and empty ones.

    Java's own corner cases: as long as only empty continued lines were read, comments and blank lines may follow; a
    text that ends in a continuation ends in a line, be it empty (but not after \\r\\n).
    """
    naturals = _LINE_END.split(text)
    last = len(naturals) - (0 if text.endswith("\r\n") else 1 if naturals[-1] else 2)
    pending, begun = "", 0
    for index, natural in enumerate(naturals):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        begun = begun if pending else index + 1
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continued else line
        if not continued or index >= last:
            yield begun, pending
            pending = ""
    if pending:
        yield begun, pending


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped[:1] != "u":
            return _ESCAPES.get(escaped, escaped)
        if not re.fullmatch("u[0-9a-fA-F]{4}", escaped):
            raise MalformedProperties(f"line {line}: \\{escaped}: must be \\u and four hexadecimal digits")
        return chr(int(escaped[1:], 16))

    joined = _ESCAPED.sub(replace, text)
    # Two escapes may be one character above U+FFFF, as UTF-16 writes it.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
