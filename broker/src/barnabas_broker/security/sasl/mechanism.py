"""The SASL mechanism as the session sees it: a dialogue of tokens that ends with a user or with a refusal."""

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """The client is refused. The message is for the broker's own log; a client learns only that it was refused.

    `for_client` is what the mechanism's own definition has the client hear (OAUTHBEARER).
    """

    def __init__(self, reason: str, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


class Identity(NamedTuple):
    """An authenticated user, and the end of the authentication."""

    user: str
    expires_at_ms: int | None = None
    """The end of the credential itself, by the wall clock; None where it has none."""


class ServerToken(NamedTuple):
    """The server's token; the dialogue is over once there is an identity."""

    token: bytes
    identity: Identity | None = None
    refusal: str | None = None
    """The reason of a refusal that follows once the client has answered, for the broker's own log (OAUTHBEARER)."""


class Dialogue(Protocol):
    """One attempt to authenticate."""

    def respond(self, token: bytes) -> ServerToken:
        """Take the client's next token. Raises AuthenticationFailed."""
        ...


class Mechanism(Protocol):
    """One mechanism of one listener."""

    @property
    def name(self) -> str:
        """The name that clients choose it by."""
        ...

    def begin(self) -> Dialogue:
        """Begin an attempt."""
        ...
