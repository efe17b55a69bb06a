"""A user's name comes from the DN of a certificate, as Java prints it, or by ssl.principal.mapping.rules."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas_broker.app.tls_contexts import rfc2253
from barnabas_core.config.listeners import DN_CHARACTERS_MAX, name_by_rules, parse_principal_rules


def dn_of(*attributes: tuple[str, str]) -> str:
    name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier(oid), value) for oid, value in attributes])
    return rfc2253(name.public_bytes(Encoding.DER))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([("2.5.4.6", "DE"), ("2.5.4.10", "Big, Inc"), ("2.5.4.3", "kafka")], r"CN=kafka,O=Big\, Inc,C=DE"),
        ([("2.5.4.3", ' #a+b="c"\\<d>; ')], r"CN=\ \#a\+b\=\"c\"\\\<d\>\;\ "),
        ([("1.2.840.113549.1.9.1", "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([("2.5.4.3", "Größe")], "CN=Größe"),
    ],
)
def test_a_dn_is_printed_as_java_prints_it(attributes: list[tuple[str, str]], text: str) -> None:
    assert dn_of(*attributes) == text


@pytest.mark.parametrize(
    ("rules", "dn", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=Writer,OU=ServiceUsers,O=b", "Writer"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),.*$/$1@x/L ,DEFAULT", "CN=Writer,O=b", "writer@x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "O=b", "O=b"),
        ("RULE:CN=(.*)/$1$2/U", "CN=a", "A$2"),
        (r"RULE:CN=(.*)\/(.*)/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:CN=/x/", "CN=a", None),
        ("DEFAULT", "C" * (DN_CHARACTERS_MAX + 1), None),
    ],
)
def test_the_first_rule_that_matches_the_whole_dn_gives_the_name(rules: str, dn: str, name: str | None) -> None:
    assert name_by_rules(dn, parse_principal_rules(rules)) == name


@pytest.mark.parametrize("rules", ["", "DEFAULT,x", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X"])
def test_a_malformed_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"must be rules separated by commas|not a regular expression"):
        parse_principal_rules(rules)
