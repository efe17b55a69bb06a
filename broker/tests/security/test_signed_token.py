"""Signed tokens: a valid one authenticates its user, and every other one is refused."""

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from barnabas_broker.security.sasl.key_set import KEY_SET_BYTES_MAX, InvalidKeySet, parse_key_set
from barnabas_broker.security.sasl.oauth_bearer import TOKEN_BYTES_MAX, InvalidToken, UnknownKey, identity_of
from barnabas_broker.security.sasl.scram import Identity
from barnabas_broker.security.sasl.token_keys import TokenRules
from harness.manual_clock import START_MS
from harness.tokens import AUDIENCE, ISSUER, Issuer

NOW_S = START_MS / 1000
OURS, STRANGER = Issuer(), Issuer()
RULES = TokenRules((AUDIENCE, "other"), ISSUER, 30)
KEYS = parse_key_set(OURS.key_set())


def token(**claims: Any) -> str:
    return OURS.token("alice", now_s=NOW_S, **claims)


def identity(text: str, rules: TokenRules = RULES, key_set: bytes = OURS.key_set()) -> Identity:
    return identity_of(text, parse_key_set(key_set), rules, START_MS)


def encoded(part: object) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


CLAIMS: Mapping[str, Any] = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}


def made(header: object, claims: object = CLAIMS, sign: Callable[[bytes], bytes] = lambda _: b"x" * 64) -> str:
    """A token that no library would make."""
    signed = f"{encoded(header)}.{encoded(claims)}"
    return f"{signed}.{encoded(sign(signed.encode()))}"


def signed(payload: bytes) -> str:
    """A token with a valid signature and this payload."""
    return jwt.api_jws.encode(payload, OURS.key, "ES256", {"kid": "one"})


def as_secret(signed: bytes) -> bytes:
    """Sign by HMAC with the public key, which everybody has, as the secret."""
    pem = OURS.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return hmac.digest(pem, signed, "sha256")


def test_a_token_is_valid_until_its_expiry_and_the_allowed_clock_skew() -> None:
    assert identity(token()) == Identity("alice", START_MS + 90_000)
    rules = TokenRules((), None, 0, "scp", "preferred")
    loose = token(sub=None, iss="other", aud=None, preferred="Alice, A.", scp=["read", "write"], scope=5)
    assert identity(loose, rules) == Identity("Alice, A.", START_MS + 60_000)


@pytest.mark.parametrize("claims", [{"aud": ["x", "other"]}, {"scope": "read write"}, {"exp": NOW_S - 29}])
def test_valid_claims_authenticate_the_user(claims: dict[str, Any]) -> None:
    assert identity(token(**claims)).user == "alice"


WRONG_CLAIMS: list[dict[str, Any]] = [
    {"exp": NOW_S - 30},
    {"exp": None},
    {"exp": True},
    {"exp": str(NOW_S + 60)},
    {"exp": float("inf")},
    {"exp": float("nan")},
    {"exp": 10**400},
    {"exp": 2**63},
    {"exp": -1},
    {"iat": None},
    {"iat": "now"},
    {"nbf": NOW_S + 31},
    {"nbf": []},
    {"iss": None},
    {"iss": f"{ISSUER}/"},
    {"aud": None},
    {"aud": "else"},
    {"aud": {"barnabas": 1}},
    {"sub": None},
    {"sub": " "},
    {"sub": 7},
    {"sub": ["alice"]},
    {"scope": 7},
    {"scope": " "},
    {"scope": ["read", "read"]},
    {"scope": ["read", 7]},
]


@pytest.mark.parametrize("claims", WRONG_CLAIMS, ids=str)
def test_a_token_with_an_invalid_claim_is_refused(claims: dict[str, Any]) -> None:
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    with pytest.raises(InvalidToken):
        identity(signed(json.dumps(merged).encode()))


DEEP = b"[" * 9000
WRONG_TOKENS = {
    "unsigned": made({"alg": "none", "kid": "one"}, sign=lambda _: b""),
    "unsigned, in capitals": made({"alg": "NONE", "kid": "one"}, sign=lambda _: b""),
    "HMAC with the public key": made({"alg": "HS256", "kid": "one"}, sign=as_secret),
    "no algorithm": made({"kid": "one"}),
    "an algorithm that is no text": made({"alg": ["ES256"], "kid": "one"}),
    "another algorithm than the key's": made({"alg": "ES384", "kid": "one"}),
    "a signature of zeros": made({"alg": "ES256", "kid": "one"}, sign=lambda _: bytes(64)),
    "a stranger's signature": STRANGER.token("alice", now_s=NOW_S),
    "a key that it brings along": made({"alg": "ES256", "kid": "one", "jwk": STRANGER.public_key}),
    "a key id that is no text": made({"alg": "ES256", "kid": {"$ne": ""}}),
    "an extension that it calls critical": made({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}),
    "a header that is no object": made(["ES256"]),
    "a deep header": made(DEEP),
    "a header that is no JSON": made(b"\xff{}"),
    "other claims than those signed": ".".join(
        [*made({"alg": "ES256", "kid": "one"}).split(".")[:2], token().split(".")[2]]
    ),
    "no token": "alice",
    "two parts": "a.b",
    "five parts": "a.b.c.d.e",
    "nothing": "",
    "no base64": "!.!.!",
    "too large": "a" * (TOKEN_BYTES_MAX + 1),
}


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_a_token_without_a_valid_signature_is_refused(name: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        identity(WRONG_TOKENS[name])
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_deeply_nested_claims_are_refused_even_with_a_valid_signature() -> None:
    with pytest.raises(InvalidToken):
        identity(signed(DEEP))


def test_a_token_with_an_unknown_key_raises_an_error_of_its_own() -> None:
    with pytest.raises(UnknownKey):
        identity(Issuer("two").token("alice", now_s=NOW_S))


def test_keys_of_every_kind_verify_their_own_algorithms_only() -> None:
    keys: dict[str, Any] = {
        "RS256": rsa.generate_private_key(65537, 2048),
        "ES384": ec.generate_private_key(ec.SECP384R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }
    kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "ES384": ECAlgorithm, "EdDSA": OKPAlgorithm}
    entries = [
        {**json.loads(kinds[name].to_jwk(key.public_key())), "kid": name, "alg": name} for name, key in keys.items()
    ]
    for name, key in keys.items():
        text = jwt.encode(dict(CLAIMS), key, name, {"kid": name})
        assert identity(text, key_set=OURS.key_set(*entries)).user == "alice"
    other = jwt.encode(dict(CLAIMS), keys["RS256"], "RS512", {"kid": "RS256"})
    with pytest.raises(InvalidToken):
        identity(other, key_set=OURS.key_set(*entries))
    any_of_rsa = [{**entries[0], "alg": None}, {k: v for k, v in entries[0].items() if k != "alg"}]
    assert identity(other, key_set=OURS.key_set(*any_of_rsa)).user == "alice"


def test_a_token_without_a_key_id_needs_a_set_with_one_fitting_key() -> None:
    text = jwt.encode(dict(CLAIMS), OURS.key, "ES256")
    assert identity(text).user == "alice"
    with pytest.raises(InvalidToken):
        identity(text, key_set=OURS.key_set(Issuer("two").public_key))


SHORT = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key()))
UNUSABLE = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
    "a private key": json.loads(ECAlgorithm.to_jwk(OURS.key)),
    "a key for encryption": {**OURS.public_key, "use": "enc"},
    "a key for other operations": {**OURS.public_key, "key_ops": ["encrypt"]},
    "a key of another algorithm": {**OURS.public_key, "alg": "HS256"},
    "a point that is not on the curve": {**OURS.public_key, "x": "AA"},
    "half a key": {"kty": "EC", "crv": "P-256"},
    "a short RSA key": SHORT,
    "a curve that is no text": {**OURS.public_key, "crv": 256},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_keys_that_cannot_verify_signatures_are_left_out(name: str) -> None:
    with pytest.raises(InvalidKeySet, match="needs a public key"):
        parse_key_set(json.dumps({"keys": [UNUSABLE[name]]}).encode())
    assert [each.key_id for each in parse_key_set(OURS.key_set(UNUSABLE[name]))] == ["one"]


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"keys":5}', DEEP * 9, b" " * (KEY_SET_BYTES_MAX + 1)])
def test_a_text_that_is_no_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        parse_key_set(text)
