"""Parse and format the messages of SCRAM (RFC 5802, chapter 7), for clients and servers."""

import re
from base64 import b64decode
from typing import Final, NamedTuple

NAME: Final = r"(?:[^,=\0]|=2C|=3D)+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorized_as>{NAME}))?,)(?P<bare>n=(?P<user>{NAME}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]=[^,\0]+|,tokenauth=[a-z]+)*)"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]=[^,\0]+)*?),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?"
)


class MalformedScram(Exception):
    """The error that a message does not have SCRAM's syntax."""


class ClientFirst(NamedTuple):
    """The first message of a client."""

    gs2_header: str
    authorized_as: str
    bare: str
    user: str
    nonce: str


class ClientFinal(NamedTuple):
    """The final message of a client, with its proof."""

    unproved: str
    channel: bytes
    nonce: str
    proof: bytes


class ServerFirst(NamedTuple):
    """The first message of a server, with the challenge."""

    nonce: str
    salt: bytes
    iterations: int


def parse_client_first(token: bytes) -> ClientFirst:
    """Parse a client's first message.

    Raise MalformedScram if the syntax is wrong, or if the client requests channel binding, which is not supported.
    """
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("the first message must be n,[a=NAME],n=USER,r=NONCE")
    names = (plain_name(match[each] or "") for each in ("authorized_as", "user"))
    authorized_as, user = names
    return ClientFirst(match["gs2"], authorized_as, match["bare"], user, match["nonce"])


def parse_client_final(token: bytes) -> ClientFinal:
    """Parse a client's final message. Raise MalformedScram if the syntax is wrong."""
    match = _CLIENT_FINAL.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("the final message must be c=BASE64,r=NONCE,p=BASE64")
    return ClientFinal(match["unproved"], _bytes(match["channel"]), match["nonce"], _bytes(match["proof"]))


def parse_server_first(token: bytes) -> ServerFirst:
    """Parse a server's first message. Raise MalformedScram if the syntax is wrong."""
    match = _SERVER_FIRST.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("a server's first message must be r=NONCE,s=BASE64,i=NUMBER")
    return ServerFirst(match["nonce"], _bytes(match["salt"]), int(match["iterations"]))


def escaped_name(name: str) -> str:
    """Return a user's name with the escapes of SCRAM messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def plain_name(escaped: str) -> str:
    """Return a user's name without the escapes of SCRAM messages."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedScram("a SCRAM message must be UTF-8") from None


def _bytes(base64: str) -> bytes:
    try:
        return b64decode(base64, validate=True)
    except ValueError:
        raise MalformedScram("a field of a SCRAM message is not base64") from None
