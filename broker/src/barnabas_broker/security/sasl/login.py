"""The client side of SASL (PLAIN and SCRAM), with which a broker authenticates to other brokers."""

from base64 import b64encode
from collections.abc import Callable
from hmac import compare_digest, digest
from typing import Final, Protocol

from barnabas_broker.security.sasl.listener_mechanisms import ENABLED, JAAS, jaas_entry
from barnabas_broker.security.sasl.scram import MalformedScram, escaped_name, parse_server_first
from barnabas_broker.security.sasl.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    ScramHash,
    credential_of,
    hashed,
    salted_password,
)
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig
from barnabas_core.config.security_definitions import BETWEEN_BROKERS

MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"


class LoginFailed(Exception):
    """The error of a login that has failed.

    The server refused the login, violated the protocol, or did not prove that it knows the password.
    """


class Login(Protocol):
    """One attempt to log in."""

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the login."""
        ...

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the next SASL token to send to the server, or None when the login is complete.

        The `challenge` is empty for the first token. Raises LoginFailed if the server refuses the login or violates the
        protocol.
        """
        ...


class PlainLogin:
    """A PLAIN login: one token with user and password."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the token at the first call, then None."""
        if challenge:
            raise LoginFailed("the other broker sent a challenge, which the PLAIN mechanism does not have")
        token, self._token = self._token, None
        return token


class ScramLogin:
    """A SCRAM login: client and server prove to each other that they know the password."""

    def __init__(self, kind: ScramHash, user: str, password: str, nonce: str) -> None:
        self.mechanism = kind.mechanism
        self._kind, self._password, self._nonce = kind, password, nonce
        self._first = f"n={escaped_name(user)},r={nonce}"
        self._verifier: bytes | None = None
        self._has_begun = False

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the client's first message at the first call, the proof at the second call, and None at the third."""
        if not self._has_begun:
            self._has_begun = True
            return f"n,,{self._first}".encode()
        if self._verifier is None:
            return self._proof(challenge)
        if not compare_digest(challenge, self._verifier):
            raise LoginFailed("the other broker did not prove that it knows the password")
        return None

    def _proof(self, challenge: bytes) -> bytes:
        try:
            server = parse_server_first(challenge)
        except MalformedScram as error:
            raise LoginFailed(str(error)) from error
        if not server.nonce.startswith(self._nonce) or not ITERATIONS_MIN <= server.iterations <= ITERATIONS_MAX:
            raise LoginFailed(
                "the server's first message has a nonce that does not begin with the nonce of this broker, or a number "
                f"of iterations that is not allowed: {server.iterations}"
            )
        function = self._kind.function
        salted = salted_password(self._kind, self._password, server.salt, server.iterations)
        server_key = credential_of(self._kind, salted, server.salt, server.iterations).server_key
        unproved = f"c=biws,r={server.nonce}"
        messages = f"{self._first},{challenge.decode()},{unproved}".encode()
        client_key = digest(salted, b"Client Key", function)
        signature = digest(hashed(self._kind, client_key), messages, function)
        self._verifier = b"v=" + b64encode(digest(server_key, messages, function))
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproved},p={b64encode(proof).decode()}".encode()


def login_between_brokers(config: BrokerConfig, new_nonce: Callable[[], str]) -> Callable[[], Login] | None:
    """Return a function that creates logins for the inter-broker listener; None if the listener has no SASL.

    Raise InvalidConfig if the settings of the login are invalid.
    """
    security = config.listener_security(config.listeners.inter_broker)
    if not security.protocol.has_sasl:
        return None
    mechanism, enabled = config.sasl_mechanism_inter_broker_protocol, security.value(ENABLED)
    assert isinstance(enabled, tuple), "a setting of type list must have been parsed into a tuple"
    if mechanism not in BETWEEN_BROKERS or mechanism not in enabled:
        allowed = f"must be one of the mechanisms in {security.setting(ENABLED)}={','.join(enabled)}"
        raise InvalidConfig([ConfigProblem(MECHANISM, mechanism, allowed)])
    problems: list[ConfigProblem] = []
    options = jaas_entry(security, mechanism, problems).options
    user, password = options.get("username"), options.get("password")
    if not problems and (not user or not password):
        setting = f"listener.name.{security.name.lower()}.{mechanism.lower()}.{JAAS}"
        problems.append(
            ConfigProblem(setting, None, "must have username and password for this broker's login at other brokers")
        )
    if problems or not user or not password:
        raise InvalidConfig(problems)
    if mechanism in SCRAM_HASHES:
        return lambda: ScramLogin(SCRAM_HASHES[mechanism], user, password, new_nonce())
    return lambda: PlainLogin(user, password)
