"""Lines of sasl.jaas.config as in Kafka's documentation, and lines that must be refused."""

import re

import pytest

from barnabas_core.config.listeners import InvalidJaas, JaasEntry, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{SCRAM} required;", {}),
        (f'{PLAIN} Required username="a b" password="x;\\"=" ;', {"username": "a b", "password": 'x;"='}),
        (
            f"{PLAIN} required\n  user_alice='one'\n  user_bob=two-2; // the end",
            {"user_alice": "one", "user_bob": "two-2"},
        ),
        (f'/* who */ {PLAIN} optional user_alice="a\\\\b\\n";', {"user_alice": "a\\b\n"}),
    ],
)
def test_a_line_contains_one_module_with_options(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text).options == options


def test_the_users_of_plain_are_the_options_with_the_prefix_user() -> None:
    entry = parse_jaas(f'{PLAIN} required username="broker" password="p" user_broker="p" user_alice="q";')
    assert entry.users == {"broker": "p", "alice": "q"}
    assert repr(entry) == "JaasEntry(family='PLAIN')"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "com.sun.security.auth.module.JndiLoginModule required;",
            "com.sun.security.auth.module.JndiLoginModule is no",
        ),
        ("PlainLoginModule required;", "PlainLoginModule is not a supported login module"),
        (f"{PLAIN} required", "must end in ;"),
        (f"{PLAIN} needed;", "one of required, requisite"),
        (f"{PLAIN} required; {SCRAM} required;", "exactly one"),
        (f"{PLAIN} required password=123;", "in quotes"),
        (f'{PLAIN} required password="geheim;', "Character"),
        (f'{PLAIN} required password "geheim";', 'NAME="VALUE"'),
        ("", "must end in ;"),
    ],
)
def test_a_malformed_line_is_refused_without_its_values_in_the_error(text: str, says: str) -> None:
    with pytest.raises(InvalidJaas, match=re.escape(says)) as refused:
        parse_jaas(text)
    assert "geheim" not in str(refused.value)


def test_equal_lines_give_equal_entries() -> None:
    assert parse_jaas(f"{SCRAM} required;") == JaasEntry("SCRAM", {})
