"""Java's properties format. The results are those of java.util.Properties, also compared for random texts."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.config.definitions import MalformedProperties, parse_properties

ROWS = [
    ("a=1", {"a": "1"}),
    ("a:1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    (" a \t= \f1 ", {"a": "1 "}),
    ("a=b=c:d", {"a": "b=c:d"}),
    ("a = = b", {"a": "= b"}),
    ("a", {"a": ""}),
    ("=1", {"": "1"}),
    ("# no\n! no\n\n  # no\na=1", {"a": "1"}),
    ("a=1 # not a comment", {"a": "1 # not a comment"}),
    ("a=1,\\\n   2,\\\r\n   3", {"a": "1,2,3"}),
    ("# a comment is not continued \\\na=1", {"a": "1"}),
    ("a=1\\\n# part of the value", {"a": "1# part of the value"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a=1\\", {"a": "1"}),
    ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
    ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    ("a=\\u65e5\\u672c", {"a": "日本"}),
    ("a=\\ud83d\\ude00", {"a": "\N{GRINNING FACE}"}),
    ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1\na=2", {"a": "2"}),
    (" \\\n!#", {}),
    ("t:\rx\n\\\n!b\r\n\r\n", {"t": "", "x": ""}),
    ("a\n\\\n", {"a": "", "": ""}),
    ("a\r\n\\\r\n", {"a": ""}),
]


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_properties_are_parsed_as_java_parses_them(text: str, expected: dict[str, str]) -> None:
    assert {key: entry.value for key, entry in parse_properties(text).items()} == expected


def test_each_parsed_property_has_its_line_number() -> None:
    parsed = parse_properties("# one\n\na=1\\\n  2\nb=3\n")
    assert {key: entry.line for key, entry in parsed.items()} == {"a": 3, "b": 5}


@pytest.mark.parametrize("escape", ["\\u12", "\\uxyz1", "\\u", "\\u 123"])
def test_the_error_for_a_malformed_escape_names_its_line(escape: str) -> None:
    with pytest.raises(MalformedProperties, match="line 2:"):
        parse_properties(f"a=1\nb={escape}")


def escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


@given(st.dictionaries(st.text(), st.text()))
def test_escaped_text_is_parsed_to_the_same_text(properties: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    parsed = {key: entry.value for key, entry in parse_properties(text).items()}
    assert parsed == {key: value for key, value in properties.items() if key or value or text}


@given(st.text(alphabet="ab=: \t\f\\\n\r#!u0\N{LATIN SMALL LETTER E WITH ACUTE}"))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(MalformedProperties):
        assert all((entry.line or 0) >= 1 for entry in parse_properties(text).values())
