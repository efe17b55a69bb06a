"""The client's side of SCRAM, written for tests independently of the broker's own."""

from base64 import b64decode, b64encode
from hashlib import new, pbkdf2_hmac
from hmac import digest


def proof_of(function: str, password: str, first_bare: str, server_first: str, unproved: str) -> tuple[str, str]:
    """The proof that a client sends, and the verifier that it expects."""
    fields = dict(each.split("=", 1) for each in server_first.split(","))
    salted = pbkdf2_hmac(function, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    messages = f"{first_bare},{server_first},{unproved}".encode()
    client_key = digest(salted, b"Client Key", function)
    signature = digest(new(function, client_key).digest(), messages, function)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verifier = digest(digest(salted, b"Server Key", function), messages, function)
    return b64encode(proof).decode(), b64encode(verifier).decode()
