"""PLAIN against the credentials of SCRAM users: logins, refusals, and the secrets that neither may show."""

from collections.abc import Mapping

import pytest

from barnabas_broker.security.sasl.scram import (
    AuthenticationFailed,
    Identity,
    Scram,
    ServerToken,
    SlowCheck,
    VerifiedPlain,
)
from barnabas_broker.security.sasl.scram_credential import (
    SCRAM_HASHES,
    SaltShape,
    ScramCredential,
    credential_of,
    salted_password,
)

SHA_256, SHA_512 = SCRAM_HASHES
SALT = b"0123456789abcdef"
Users = dict[tuple[str, str], ScramCredential]


def verifier(password: str, mechanism: str = SHA_512, iterations: int = 4096) -> ScramCredential:
    kind = SCRAM_HASHES[mechanism]
    return credential_of(kind, salted_password(kind, password, SALT, iterations), SALT, iterations)


def scram(mechanism: str, users: Mapping[tuple[str, str], ScramCredential]) -> Scram:
    def shapes() -> list[SaltShape]:
        return [SaltShape(len(SALT), each.iterations) for (_, of), each in users.items() if of == mechanism]

    return Scram(SCRAM_HASHES[mechanism], lambda user: users.get((user, mechanism)), b"secret", str, shapes)


def plain(users: Users) -> VerifiedPlain:
    return VerifiedPlain([scram(SHA_512, users), scram(SHA_256, users)], b"key")


def slow(mechanism: VerifiedPlain, token: bytes) -> SlowCheck:
    found = mechanism.begin().answer(token)
    assert isinstance(found, SlowCheck)
    return found


def log_in(mechanism: VerifiedPlain, token: bytes) -> Identity | None:
    check = slow(mechanism, token)
    return check.conclude(check.compute()).identity


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("token", [b"\0alice\0right", b"alice\0alice\0right"])
def test_a_user_authenticates_with_the_password_and_a_second_time_without_a_slow_check(
    mechanism: str, token: bytes
) -> None:
    server = plain({("alice", mechanism): verifier("right", mechanism)})
    alice = Identity("alice", credential=mechanism, verifier_id=verifier("right", mechanism).keys.verifier_id)
    assert log_in(server, token) == alice
    assert server.answer(token) == ServerToken(b"", alice)


def test_the_sha_512_credential_of_a_user_takes_precedence() -> None:
    server = plain({("alice", SHA_256): verifier("old", SHA_256), ("alice", SHA_512): verifier("new")})
    assert log_in(server, b"\0alice\0new") == Identity(
        "alice", credential=SHA_512, verifier_id=verifier("new").keys.verifier_id
    )
    with pytest.raises(AuthenticationFailed):
        log_in(server, b"\0alice\0old")


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0bob\0right", b"\0alice\0right\n", b"\0Alice\0right"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_refusal(token: bytes) -> None:
    server = plain({("alice", SHA_512): verifier("right")})
    assert log_in(server, b"\0alice\0right") is not None
    with pytest.raises(AuthenticationFailed, match="the user is unknown, or the password is wrong") as refused:
        log_in(server, token)
    assert "right" not in str(refused.value)


@pytest.mark.parametrize("token", [b"", b"\0\0right", b"\0alice\0", b"\xff\0a\0b", b"bob\0alice\0right"])
def test_a_malformed_token_or_another_authorization_id_is_refused_without_a_hash(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        plain({("alice", SHA_512): verifier("right")}).answer(token)


def test_a_changed_or_deleted_password_is_refused_even_after_a_login_with_it() -> None:
    users: Users = {("alice", SHA_512): verifier("old")}
    server = plain(users)
    assert log_in(server, b"\0alice\0old") is not None
    users["alice", SHA_512] = verifier("new")
    with pytest.raises(AuthenticationFailed):
        log_in(server, b"\0alice\0old")
    assert log_in(server, b"\0alice\0new") is not None
    del users["alice", SHA_512]
    with pytest.raises(AuthenticationFailed):
        log_in(server, b"\0alice\0new")


def test_a_password_that_changes_during_the_check_is_refused() -> None:
    users: Users = {("alice", SHA_512): verifier("old")}
    check = slow(plain(users), b"\0alice\0old")
    hashed = check.compute()
    users["alice", SHA_512] = verifier("new")
    with pytest.raises(AuthenticationFailed):
        check.conclude(hashed)


def hash_bytes(server: VerifiedPlain, user: int) -> int:
    """Return the size of the hash that is computed for a wrong password."""
    return len(slow(server, f"\0user-{user}\0wrong".encode()).compute())


def test_an_unknown_user_costs_the_same_hash_as_a_known_one() -> None:
    nobody = plain({})
    assert {hash_bytes(nobody, user) for user in range(9)} == {64}
    of_one = plain({("alice", SHA_256): verifier("right", SHA_256)})
    assert {hash_bytes(of_one, user) for user in range(9)} == {32}
    users: Users = {("alice", SHA_512): verifier("right"), ("bob", SHA_256): verifier("right", SHA_256)}
    found = [hash_bytes(plain(users), user) for user in range(20)]
    assert set(found) == {32, 64}
    assert found == [hash_bytes(plain(users), user) for user in range(20)], "the same user costs the same again"


def test_the_mechanism_keeps_no_readable_password() -> None:
    server = plain({("alice", SHA_512): verifier("right")})
    log_in(server, b"\0alice\0right")
    assert "right" not in repr(vars(server))
