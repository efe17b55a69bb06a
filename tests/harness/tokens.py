"""An issuer of signed tokens for tests: a key, its JWK set, and tokens (JWT) with any claims."""

import json
import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER: Final = "https://issuer.example.org"
AUDIENCE: Final = "barnabas"


class Issuer:
    """An issuer that signs by ES256, with a key of its own."""

    def __init__(self, key_id: str = "one") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.key_id = key_id

    @property
    def public_key(self) -> dict[str, Any]:
        """Return the key as an entry of a JWK set."""
        entry = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return {**entry, "kid": self.key_id, "use": "sig", "alg": "ES256"}

    def key_set(self, *others: dict[str, Any]) -> bytes:
        """Return the JWK set, as its URL has it."""
        return json.dumps({"keys": [self.public_key, *others]}).encode()

    def token(self, user: str, *, now_s: float | None = None, valid_s: float = 60, **claims: Any) -> str:
        """Return a token of a user; claims that are None are left out."""
        now_s = time.time() if now_s is None else now_s
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + valid_s, **claims}
        payload = {name: value for name, value in usual.items() if value is not None}
        return jwt.encode(payload, self.key, "ES256", {"kid": self.key_id})
