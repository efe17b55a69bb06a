"""Parse Java's properties format exactly, with comments, continued lines, escapes and three separators.

The rules are those of `java.util.Properties.load`. A comment line cannot be continued. A key ends at the first
unescaped `=`, `:` or blank. If a key occurs twice, its last value counts. The package javaproperties treats empty
continued lines differently from Java.
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
    """A value and the number of the line on which it begins, counted from 1; None if it is from no file."""

    value: str
    line: int | None


class MalformedProperties(ValueError):
    """The error that a text is not in the properties format; the message has the line number."""


def parse_properties(text: str) -> dict[str, Property]:
    """Return all properties by key.

    Raise MalformedProperties for a Unicode escape without four hexadecimal digits; any other text is valid.
    """
    properties = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern for keys must match an empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "the pattern for separators must match an empty text"
        value = _unescape(line[separator.end() :], number)
        properties[_unescape(key.group(), number)] = Property(value, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the logical lines of a text, as Java's Properties reads them.

    Lines that end with a backslash are joined with the next line. Blanks at the start, comments and blank lines are
    left out, even after a line that is only a backslash. If the last line is only a backslash, an empty line is
    yielded, unless the text ends with \r\n.
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
            raise MalformedProperties(f"line {line}: the escape \\{escaped} must be \\u and four hexadecimal digits")
        return chr(int(escaped[1:], 16))

    joined = _ESCAPED.sub(replace, text)
    # Two escapes may be the UTF-16 surrogates of one character above U+FFFF.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
