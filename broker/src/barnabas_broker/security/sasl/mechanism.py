"""The interface of SASL mechanisms: client and broker exchange tokens until the client is accepted or refused."""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """The error that a client is refused; the broker logs the message, but does not send it to the client.

    `for_client` is the message that the client gets, as the specification of OAUTHBEARER requires.
    """

    def __init__(self, reason: str, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


class Identity(NamedTuple):
    """An authenticated user, and the time at which the credential expires."""

    user: str
    expires_at_ms: int | None = None
    """The wall-clock time at which the credential expires; None if it does not expire."""
    credential: str = ""
    """The mechanism of the stored credential (such as SCRAM-SHA-512) if the client used another mechanism (PLAIN).

    Empty if the client used the mechanism of the credential.
    """
    verifier_id: bytes = b""
    """The id of the stored verifier that the client's password matched; empty without a stored verifier."""


class ServerToken(NamedTuple):
    """A token that the broker sends; if `identity` is set, the client is authenticated, and the exchange is over."""

    token: bytes
    identity: Identity | None = None
    refusal: str | None = None
    """The reason for the log if OAUTHBEARER refuses the client; otherwise None.

    In a refusal, `token` is the error message for the client.
    """


class SlowCheck(NamedTuple):
    """A check that takes milliseconds: `compute` runs in a thread, and `conclude` gets its result on the event loop.

    `conclude` raises AuthenticationFailed if the client is refused.
    """

    compute: Callable[[], bytes]
    conclude: Callable[[bytes], ServerToken]


class Dialogue(Protocol):
    """One attempt of a client to authenticate."""

    def respond(self, token: bytes) -> ServerToken | SlowCheck:
        """Handle the client's next token. Raise AuthenticationFailed if the client is refused."""
        ...


class Mechanism(Protocol):
    """A SASL mechanism of a listener."""

    @property
    def name(self) -> str:
        """The name by which clients choose the mechanism."""
        ...

    def begin(self) -> Dialogue:
        """Begin an attempt to authenticate."""
        ...
