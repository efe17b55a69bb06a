"""Two valid passwords of a user: SCRAM and PLAIN accept both until the previous one ends."""

from collections.abc import Mapping
from hashlib import new
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from barnabas_broker.security.sasl.listener_mechanisms import SaslEnvironment, ScramLogin, listener_mechanisms
from barnabas_broker.security.sasl.scram import (
    AuthenticationFailed,
    Dialogue,
    Identity,
    Mechanism,
    ServerToken,
    SlowCheck,
)
from barnabas_broker.security.sasl.scram_credential import (
    SCRAM_HASHES,
    PreviousPassword,
    ScramCredential,
    credential_of,
    format_credential,
    parse_credential,
    salted_password,
    shape_of,
)
from barnabas_core.config.listeners import ListenerSecurity, SecurityProtocol

MECHANISM = "SCRAM-SHA-512"
KIND = SCRAM_HASHES[MECHANISM]
ALICE = ("alice", MECHANISM)
END_MS = 5_000
WAYS = ("PLAIN", MECHANISM)
Users = dict[tuple[str, str], ScramCredential]


def credential(password: str, previous: str | None = None, salt: bytes = b"of alice") -> ScramCredential:
    """Return the credential of a password; `previous` is valid until END_MS."""
    made = credential_of(KIND, salted_password(KIND, password, salt, 4096), salt, 4096)
    if previous is None:
        return made
    return replace(made, previous=PreviousPassword(credential(previous, salt=salt).keys, END_MS))


class Server:
    """The mechanisms of a listener, on a clock that the test moves."""

    def __init__(self, **users: ScramCredential) -> None:
        self.users: Users = {(user, MECHANISM): each for user, each in users.items()}
        self.now_ms = 0
        shapes = [shape_of(each) for each in users.values()]
        environment = SaslEnvironment(
            self.users, b"secret", lambda: "server", Mock(), lambda: self.now_ms, lambda name: shapes * (name in ALICE)
        )
        settings = {"sasl.enabled.mechanisms": ",".join(WAYS), "sasl.plain.credentials": "scram"}
        named = {f"listener.name.x.{name}": text for name, text in settings.items()}
        security = ListenerSecurity("X", SecurityProtocol.SASL_SSL, named)
        self.mechanisms: Mapping[str, Mechanism] = listener_mechanisms(security, environment)

    def log_in(self, way: str, password: str, user: str = "alice") -> Identity | None:
        """Log in, and return the identity. Raises AuthenticationFailed."""
        dialogue = self.mechanisms[way].begin()
        if way == "PLAIN":
            return answer(dialogue, f"\0{user}\0{password}".encode()).identity
        login = ScramLogin(KIND, user, password, "client")
        first = answer(dialogue, login.next_token(b"") or b"")
        last = answer(dialogue, login.next_token(first.token) or b"")
        assert login.next_token(last.token) is None, "the server proves that it knows this password"
        return last.identity


def answer(dialogue: Dialogue, token: bytes) -> ServerToken:
    found = dialogue.answer(token)
    return found.conclude(found.compute()) if isinstance(found, SlowCheck) else found


@pytest.mark.parametrize("way", WAYS)
def test_both_passwords_are_accepted_until_the_previous_one_ends(way: str) -> None:
    server = Server(alice=credential("new", previous="old"))
    for _ in range(2):
        for password in ("old", "new"):
            identity = server.log_in(way, password)
            assert identity is not None
            assert identity.verifier_id == credential(password).keys.verifier_id
    server.now_ms = END_MS
    assert server.log_in(way, "new") is not None
    with pytest.raises(AuthenticationFailed, match="unknown, or the password is wrong"):
        server.log_in(way, "old")


def test_plain_hashes_neither_of_two_passwords_again() -> None:
    server = Server(alice=credential("new", previous="old"))
    for password in ("old", "new", "old"):
        server.log_in("PLAIN", password)
    for password in ("old", "new"):
        assert isinstance(server.mechanisms["PLAIN"].begin().answer(f"\0alice\0{password}".encode()), ServerToken)


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_password_and_an_unknown_user_are_refused_alike_while_two_passwords_are_valid(way: str) -> None:
    server = Server(alice=credential("new", previous="old"), bob=credential("new"))
    refusals = set()
    for user in ("alice", "bob", "nobody"):
        with pytest.raises(AuthenticationFailed) as refused:
            server.log_in(way, "wrong", user)
        refusals.add(str(refused.value).replace(user, "USER"))
    assert len(refusals) == 1


def test_a_proof_is_checked_against_two_verifiers_for_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(alice=credential("new", previous="old"), bob=credential("new"))
    checks = {}
    for user, password in (("alice", "new"), ("alice", "old"), ("alice", "x"), ("bob", "new"), ("nobody", "x")):
        hashes: list[bytes] = []
        with monkeypatch.context() as patched:
            patched.setattr("barnabas_broker.security.sasl.scram.hashed", counted(hashes))
            try:
                server.log_in(MECHANISM, password, user)
            except AuthenticationFailed:
                assert password == "x"
        checks[user, password] = len(hashes)
    assert set(checks.values()) == {2}


def counted(hashes: list[bytes]) -> object:
    def hashed(kind: object, key: bytes) -> bytes:
        hashes.append(key)
        return new(KIND.function, key).digest()

    return hashed


@pytest.mark.parametrize("password", ["old", "new"])
@pytest.mark.parametrize("way", WAYS)
def test_a_rotation_with_an_overlap_refuses_no_login_that_is_under_way(way: str, password: str) -> None:
    server = Server(alice=credential("old"))
    if way == "PLAIN":
        check = server.mechanisms[way].begin().answer(f"\0alice\0{password}".encode())
        assert isinstance(check, SlowCheck)
        hashed = check.compute()
        server.users[ALICE] = credential("new", previous="old")
        assert check.conclude(hashed).identity is not None
        return
    dialogue, login = server.mechanisms[way].begin(), ScramLogin(KIND, "alice", password, "client")
    challenge = answer(dialogue, login.next_token(b"") or b"")
    server.users[ALICE] = credential("new", previous="old")
    assert answer(dialogue, login.next_token(challenge.token) or b"").identity is not None


@pytest.mark.parametrize("way", WAYS)
def test_a_third_password_or_a_revocation_ends_the_first_one_at_once(way: str) -> None:
    server = Server(alice=credential("new", previous="old"))
    assert server.log_in(way, "old") is not None
    for now in (credential("newest", previous="new"), credential("new")):
        server.users[ALICE] = now
        assert server.log_in(way, "new") is not None
        with pytest.raises(AuthenticationFailed):
            server.log_in(way, "old")


def test_a_document_has_both_passwords_and_an_earlier_version_reads_the_current_one() -> None:
    both = credential("new", previous="old")
    text = format_credential(both)
    assert parse_credential(text) == both
    assert parse_credential(format_credential(credential("new"))) == credential("new")
    assert text.startswith(format_credential(credential("new")))
    fields = dict(each.split("=", 1) for each in text.split(","))  # So do earlier versions read it.
    names = ("salt", "stored_key", "server_key", "iterations")
    assert ",".join(f"{name}={fields[name]}" for name in names) == format_credential(credential("new"))


@pytest.mark.parametrize("damage", [("previous_stored_key=", "previous_stored_key=!"), ("ends_ms=", "ends_ms=x")])
def test_a_damaged_previous_password_makes_the_document_unreadable_and_shows_no_key(damage: tuple[str, str]) -> None:
    both = credential("new", previous="old")
    with pytest.raises(ValueError, match="must be salt="):
        parse_credential(format_credential(both).replace(*damage))
    assert repr(both) == (
        f"ScramCredential(iterations=4096, previous=PreviousPassword(keys=ScramKeys(), ends_ms={END_MS}))"
    )
