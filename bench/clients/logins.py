"""New connections in a closed loop: handshakes of TLS by openssl, and logins by SCRAM over TLS."""

import re
import shutil
import socket
import ssl
import time
from base64 import b64decode, b64encode
from functools import cache
from hashlib import pbkdf2_hmac, sha512
from hmac import digest
from pathlib import Path
from typing import Final

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from bench.clients.job import NotRun, PartMissing, run_command
from bench.secured_broker import MECHANISM, PASSWORD, USER
from harness.ask import ask_on

COUNTED: Final = re.compile(r"(\d+) connections in (\d+) real seconds")
NONCE: Final = "bench"
VERSION: Final = 1
TIMEOUT_S: Final = 30.0


def handshakes(bootstrap: str, authority: Path, seconds: float) -> int:
    """Return how many new sessions of TLS 1.3 one thread of openssl began within whole seconds."""
    if shutil.which("openssl") is None:
        raise PartMissing("openssl is not on the machine")
    command = ["openssl", "s_time", "-connect", bootstrap, "-CAfile", str(authority), "-new", "-tls1_3"]
    counted = COUNTED.search(run_command([*command, "-time", str(max(1, round(seconds)))]))
    if counted is None:
        raise NotRun("openssl told no number of connections")
    return int(counted[1])


def logins(host: str, port: int, authority: Path, seconds: float) -> int:
    """Return how often the user logged in within the time, each time on a new connection."""
    context, count = ssl.create_default_context(cafile=str(authority)), 0
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            _log_in(connection)
        count += 1
    return count


def _log_in(connection: socket.socket) -> None:
    handshake = ask_on(connection, SaslHandshakeRequest(mechanism=MECHANISM), VERSION)
    if handshake.error_code:
        raise NotRun(f"SaslHandshake was answered with {handshake.error_code}")
    first_bare = f"n={USER},r={NONCE}"
    server_first = _authenticate(connection, f"n,,{first_bare}")
    nonce, salt, iterations = (field.partition("=")[2] for field in server_first.split(","))
    unproved = f"c=biws,r={nonce}"
    proof = _proof(salt, int(iterations), f"{first_bare},{server_first},{unproved}")
    _authenticate(connection, f"{unproved},p={proof}")


def _authenticate(connection: socket.socket, message: str) -> str:
    answer = ask_on(connection, SaslAuthenticateRequest(auth_bytes=message.encode()), VERSION)
    if answer.error_code:
        raise NotRun(f"the login was refused: {answer.error_message}")
    return bytes(answer.auth_bytes).decode()


def _proof(salt: str, iterations: int, messages: str) -> str:
    key = _client_key(salt, iterations)
    signature = digest(sha512(key).digest(), messages.encode(), "sha512")
    return b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


@cache
def _client_key(salt: str, iterations: int) -> bytes:
    """Return the key, which a client computes once: the loop measures brokers, not PBKDF2."""
    return digest(pbkdf2_hmac("sha512", PASSWORD.encode(), b64decode(salt), iterations), b"Client Key", "sha512")
