"""The single token of PLAIN."""

import pytest

from barnabas_broker.security.sasl.scram import AuthenticationFailed, Plain


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_user_authenticates_with_the_password(token: bytes) -> None:
    answer = Plain({"alice": "secret"}).begin().answer(token)
    assert answer.token == b""
    assert answer.identity is not None
    assert answer.identity.user == "alice"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0alice\0wrong",
        b"\0bob\0secret",
        b"bob\0alice\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0secret\0",
        b"\xff\0a\0b",
    ],
)
def test_every_other_token_is_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        Plain({"alice": "secret"}).begin().answer(token)
    assert "secret" not in str(refused.value)
