"""SCRAM as RFC 7677 and Kafka's clients speak it, and the attempts of an attacker."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scram_client import proof_of

from barnabas_broker.security.sasl.listener_mechanisms import LoginFailed, ScramLogin
from barnabas_broker.security.sasl.scram import AuthenticationFailed, Scram, ServerToken, escaped_name
from barnabas_broker.security.sasl.scram_credential import (
    SCRAM_HASHES,
    ScramCredential,
    credential_of,
    format_credential,
    parse_credential,
    salted_password,
    shape_of,
)

SHA_256 = SCRAM_HASHES["SCRAM-SHA-256"]
SALT = b"a salt"


def verifier_of(password: str, mechanism: str = "SCRAM-SHA-256", salt: bytes = SALT) -> ScramCredential:
    kind = SCRAM_HASHES[mechanism]
    return credential_of(kind, salted_password(kind, password, salt, 4096), salt, 4096)


def server(users: dict[str, ScramCredential], mechanism: str = "SCRAM-SHA-256", nonce: str = "server") -> Scram:
    return Scram(SCRAM_HASHES[mechanism], users.get, b"secret of the cluster", lambda: nonce)


def attempt(
    scram: Scram, user: str, password: str, gs2: str = "n,,", channel: str = "biws", extension: str = ""
) -> tuple[ServerToken, str]:
    """Return the last answer, and the verifier that the client expects."""
    bare = f"n={escaped_name(user)},r=client{extension}"
    dialogue = scram.begin()
    server_first = dialogue.answer((gs2 + bare).encode()).token.decode()
    nonce = server_first.split(",")[0]
    unproved = f"c={channel},{nonce}"
    proof, verifier = proof_of(scram.kind.function, password, bare, server_first, unproved)
    return dialogue.answer(f"{unproved},p={proof}".encode()), verifier


def test_the_answers_to_the_example_of_rfc_7677_are_those_of_the_rfc() -> None:
    users = {"user": verifier_of("pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))}
    dialogue = server(users, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").begin()
    first = dialogue.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = dialogue.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.identity is not None
    assert last.identity.user == "user"


@settings(max_examples=10, deadline=None)
@given(user=st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text), password=st.text(max_size=20))
def test_any_user_authenticates_with_the_password_and_the_server_proves_itself(user: str, password: str) -> None:
    for mechanism in SCRAM_HASHES:
        last, verifier = attempt(server({user: verifier_of(password, mechanism)}, mechanism), user, password)
        assert last.identity is not None
        assert last.identity.user == user
        assert last.token == f"v={verifier}".encode()


def test_an_unknown_user_gets_the_same_dialogue_as_a_known_one_with_a_wrong_password() -> None:
    refusals = []
    for scram in (server({"alice": verifier_of("right")}), server({})):
        with pytest.raises(AuthenticationFailed) as refused:
            attempt(scram, "alice", "wrong")
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]
    first, again = (server({}, nonce=nonce).begin().answer(b"n,,n=bob,r=x").token.split(b",") for nonce in "ab")
    assert first[1:] == again[1:]
    assert first[2] == b"i=4096"
    assert server({}).begin().answer(b"n,,n=eve,r=x").token.split(b",")[1] != first[1]


def nobody(_: str) -> None:
    """Know no user."""


def test_an_unknown_user_gets_a_salt_of_the_same_shape_as_known_users() -> None:
    shapes = [shape_of(verifier_of("x", salt=salt)) for salt in (b"\xe9" * 24, b"0123456789abcdefghijklmnop")]
    assert shapes[0].salt_bytes == 24
    scram = Scram(SHA_256, nobody, b"secret of the cluster", lambda: "server", lambda: shapes)
    made_up = [scram.made_up(f"user {number}") for number in range(20)]
    assert {shape_of(each) for each in made_up} == set(shapes)
    assert len({each.salt for each in made_up}) == len(made_up)
    one = Scram(SHA_256, nobody, b"secret of the cluster", lambda: "server", lambda: shapes[:1])
    kept = [each for each in range(20) if shape_of(made_up[each]) == shapes[0]]
    assert [one.made_up(f"user {number}") for number in kept] == [made_up[number] for number in kept]


@pytest.mark.parametrize(
    ("gs2", "channel"),
    [("n,,", b64encode(b"y,,").decode()), ("n,a=bob,", b64encode(b"n,a=bob,").decode()), ("n,a=alice,", "biws")],
)
def test_another_channel_binding_or_another_authorization_id_is_refused(gs2: str, channel: str) -> None:
    with pytest.raises(AuthenticationFailed):
        attempt(server({"alice": verifier_of("right")}), "alice", "right", gs2, channel)


def test_an_extension_is_ignored_and_a_delegation_token_is_refused() -> None:
    scram = server({"alice": verifier_of("right")})
    assert attempt(scram, "alice", "right", extension=",x=y")[0].identity is not None
    with pytest.raises(AuthenticationFailed):
        attempt(scram, "id-of-a-token", "right", extension=",tokenauth=true")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=a,r=b",
        b"p=tls-unique,,n=a,r=b",
        b"n,,m=x,n=a,r=b",
        b"n,,n=,r=b",
        b"n,,n=a=2c,r=b",
        b"n,,n=a,r=",
        b"\xff",
    ],
)
def test_a_malformed_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server({}).begin().answer(first)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws,r=client,p=AAAA", b"c=biws,r=clientserver,p=AAAA", b"c=biws,r=clientserver", b"c=!,r=x,p=A"]
)
def test_a_final_message_with_another_nonce_or_no_proof_is_refused(final: bytes) -> None:
    dialogue = server({"alice": verifier_of("right")}).begin()
    dialogue.answer(b"n,,n=alice,r=client")
    with pytest.raises(AuthenticationFailed):
        dialogue.answer(final)


def test_the_old_password_is_refused_if_it_changes_during_the_dialogue() -> None:
    users = {"alice": verifier_of("old")}
    scram = server(users)
    bare, dialogue = "n=alice,r=client", scram.begin()
    server_first = dialogue.answer(f"n,,{bare}".encode()).token.decode()
    users["alice"] = verifier_of("new")
    proof, _ = proof_of("sha256", "old", bare, server_first, "c=biws,r=clientserver")
    with pytest.raises(AuthenticationFailed):
        dialogue.answer(f"c=biws,r=clientserver,p={proof}".encode())


def test_a_credential_is_stored_in_kafkas_text_format_and_its_repr_shows_no_key() -> None:
    verifier = verifier_of("right")
    assert parse_credential(format_credential(verifier)) == verifier
    assert format_credential(verifier).startswith("salt=YSBzYWx0,stored_key=")
    assert repr(verifier) == "ScramCredential(iterations=4096, previous=None)"
    with pytest.raises(ValueError, match="must be salt="):
        parse_credential("salt=x")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_broker_logs_in_to_another_and_checks_its_proof(mechanism: str) -> None:
    scram = server({"b,1": verifier_of("right", mechanism)}, mechanism)
    login, dialogue = ScramLogin(SCRAM_HASHES[mechanism], "b,1", "right", "n"), scram.begin()
    first = dialogue.answer(login.next_token(b"") or b"")
    last = dialogue.answer(login.next_token(first.token) or b"")
    assert last.identity is not None
    assert login.next_token(last.token) is None
    with pytest.raises(LoginFailed):
        login.next_token(b"v=AAAA")


@pytest.mark.parametrize("challenge", [b"", b"r=other,s=AAAA,i=4096", b"r=nx,s=AAAA,i=1", b"r=nx,s=AAAA,i=999999999"])
def test_a_broker_refuses_an_invalid_challenge_of_another(challenge: bytes) -> None:
    login = ScramLogin(SHA_256, "b", "right", "n")
    login.next_token(b"")
    with pytest.raises(LoginFailed):
        login.next_token(challenge)
