"""Authenticate one connection by SASL; if the session can expire, check at each request that it has not expired.

`SaslSession._STEPS` is the whole protocol (KIP-43, KIP-152, KIP-368): what each frame does in each state. A frame
without a step in the current state closes the connection without a response, because no Kafka client sends such a
frame.
"""

import logging
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple

from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.security.sasl.mechanism import (
    AuthenticationFailed,
    Dialogue,
    Identity,
    Mechanism,
    ServerToken,
    SlowCheck,
)
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.connection import Connection, Dispatch
from barnabas_broker.server.sasl_listener import NO_MECHANISM, SaslListener
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import (
    API_SPECS,
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    MalformedRequest,
    Part,
    RequestHeader,
    parse_request_header,
)
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode

log = logging.getLogger(__name__)

SASL_FRAME_BYTES_MAX: Final = 64 * 1024
"""The maximum bytes of a frame until a client has authenticated, also if it does so again.

sasl.server.max.receive.size may set a lower limit.
"""
REFUSED_VERSIONS_MAX: Final = 3
"""The number of unsupported versions of ApiVersions that a client may try; the first answer has the supported ones."""
REAUTHENTICATION_S_MIN: Final = 1.0
"""The shortest time in seconds from the start of one authentication on a connection to the next, as in Kafka."""
REASON_CHARS_MAX: Final = 400
"""The maximum length of a reason in the log, because the reason can contain names sent by unauthenticated clients."""
LIFETIME_SINCE: Final = 1
"""The first version of SaslAuthenticate whose response has the lifetime of the session."""
BUG: Final = "bug in the SASL authentication of %s"
_API_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")


class _Deferred(NamedTuple):
    """A response that is sent later: the function that sends its parts, and its place in the order of responses."""

    respond: Callable[[list[Part]], None]
    late: LateAnswer


_Step = Callable[["SaslSession", Connection, memoryview, int, int], None]
"""The handler of a frame in a state."""


class State(Enum):
    """The SASL states of a connection."""

    NEW = "new"
    VERSIONED = "versioned"
    BARE_TOKENS = "bare tokens"
    TOKENS = "tokens"
    AUTHENTICATED = "authenticated"
    TOKENS_AGAIN = "tokens again"


class Frame(Enum):
    """The kinds of frames that SASL distinguishes."""

    API_VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    OTHER = "another request"


_ANY: Final = tuple(Frame)
_FRAMES: Final[Mapping[int, Frame]] = {
    API_VERSIONS: Frame.API_VERSIONS,
    SASL_HANDSHAKE: Frame.HANDSHAKE,
    SASL_AUTHENTICATE: Frame.AUTHENTICATE,
}


def begin_session(listener: SaslListener, connection: Connection) -> None:
    """Serve only SASL on the connection until it has authenticated; close it if it takes too long."""
    SaslSession(listener, connection.dispatch, connection.request_bytes_max).begin(connection)


class SaslSession:
    """The handler of a connection's requests until the client has authenticated.

    Later requests go directly to the dispatcher if the session never expires. Otherwise SaslSession still gets each
    request first, and closes the connection once the session has expired.
    """

    def __init__(self, listener: SaslListener, dispatch: Dispatch, request_bytes_max: int) -> None:
        self._listener = listener
        self._dispatch = dispatch
        self._request_bytes_max = request_bytes_max
        self._state = State.NEW
        self._mechanism: Mechanism | None = None
        self._dialogue: Dialogue | None = None
        self._identity: Identity | None = None
        self._ends_s: float | None = None
        """The monotonic time at which the session ends; None if it never ends."""
        self._began_s = 0.0
        self._refused_versions = 0
        self._is_refused = False
        """True once the refusal of the current attempt is counted and logged."""

    def begin(self, connection: Connection) -> None:
        """Become the dispatcher of a new connection until the client has authenticated."""
        connection.dispatch = self
        self._limit_frames(connection)
        self._listener.logins.began(connection)

    def _limit_frames(self, connection: Connection) -> None:
        connection.request_bytes_max = min(self._listener.frame_bytes_max, SASL_FRAME_BYTES_MAX)

    def __call__(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Handle one frame. Raise MalformedRequest or CloseConnection to close the connection."""
        step = self._STEPS.get((self._state, _frame(buffer, start, end)))
        if step is None:
            raise CloseConnection(
                f"the client sent a frame that is not allowed in the SASL state '{self._state.value}'"
            )
        try:
            step(self, connection, buffer, start, end)
        except (MalformedRequest, CloseConnection):
            raise
        except Exception as error:  # A bug in SASL closes only this connection.
            log.exception(BUG, connection.peer)
            raise CloseConnection("the SASL authentication failed with an unexpected error") from error

    def _tell_versions(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        header = parse_request_header(buffer, start, end)
        if API_SPECS[API_VERSIONS].supports(header.api_version):
            self._state = State.VERSIONED
        elif self._refused_versions == REFUSED_VERSIONS_MAX:
            raise CloseConnection(f"the client tried more than {REFUSED_VERSIONS_MAX} unsupported ApiVersions versions")
        else:
            self._refused_versions += 1
        self._dispatch(connection, buffer, start, end)

    def _choose(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        header, request = _decoded(buffer, start, end)
        mechanisms = self._listener.mechanisms
        self._mechanism = mechanism = mechanisms.get(request.mechanism)
        if mechanism is None:
            answer = _handshake_answer(header, ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
            self._refuse(connection, [answer], "the client asked for a mechanism that is not enabled")
            return
        self._begin_dialogue(connection, mechanism, header)

    def _begin_dialogue(self, connection: Connection, mechanism: Mechanism, header: RequestHeader) -> None:
        self._limit_frames(connection)
        self._dialogue, self._is_refused = mechanism.begin(), False
        if self._identity is not None:
            self._state = State.TOKENS_AGAIN
        else:
            self._state = State.TOKENS if header.api_version else State.BARE_TOKENS
        self._began_s = self._listener.clock.monotonic_s()
        connection.respond([_handshake_answer(header, ErrorCode.NONE, self._listener.mechanisms)])

    def _take_bare_token(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Handle a token without a request header, which follows SaslHandshake v0; a refusal gets no response."""
        self._take(connection, None, bytes(buffer[start:end]))

    def _take_token(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        header, request = _decoded(buffer, start, end)
        self._take(connection, header, bytes(request.auth_bytes))

    def _take(self, connection: Connection, header: RequestHeader | None, token: bytes) -> None:
        """Respond to a SASL token, at once or after a check in a thread.

        Nothing is read from the connection during the check.
        """
        assert self._dialogue is not None, "the client must choose a mechanism before it sends a token"
        try:
            found = self._dialogue.respond(token)
            if isinstance(found, SlowCheck):
                self._check_slowly(connection, header, found)
            else:
                connection.respond(self._answer(connection, header, found))
        except AuthenticationFailed as failure:
            self._refuse(connection, self._refusal(header, failure), str(failure))

    def _check_slowly(self, connection: Connection, header: RequestHeader | None, check: SlowCheck) -> None:
        deferred = _deferred(connection)

        def conclude(result: Callable[[], bytes]) -> None:
            try:
                deferred.respond(self._answer(connection, header, check.conclude(result())))
            except AuthenticationFailed as failure:
                self._refuse(connection, self._refusal(header, failure), str(failure), deferred)
            except Exception:  # A bug in SASL closes only this connection.
                log.exception(BUG, connection.peer)
                connection.close("the SASL authentication failed with an unexpected error")

        deferred.late.give_up = self._listener.in_thread(connection.client.host, check.compute, conclude)

    def _answer(self, connection: Connection, header: RequestHeader | None, found: ServerToken) -> list[Part]:
        """Return the response to a token, and begin the session after the last token.

        Raise AuthenticationFailed if the client is refused.
        """
        if found.refusal is not None:
            self._note_refusal(connection, found.refusal)
        if found.identity is not None:
            self._authenticated(connection, found.identity)
        if header is None:
            return [_SIZE.pack(len(found.token)) + found.token]
        response = message_class("SaslAuthenticateResponse")
        answer = response(error_code=ErrorCode.NONE, error_message=None, auth_bytes=found.token)
        if header.api_version >= LIFETIME_SINCE and self._ends_s is not None and self._dialogue is None:
            answer.session_lifetime_ms = max(round((self._ends_s - self._listener.clock.monotonic_s()) * 1000), 0)
        return [_encoded(header, answer)]

    def _refusal(self, header: RequestHeader | None, failure: AuthenticationFailed) -> list[Part]:
        """Return the parts of the error response to a client whose token is refused.

        Return an empty list if the client sent the token without a request header, because such a client reads no error
        response.
        """
        if header is None:
            return []
        response = message_class("SaslAuthenticateResponse")
        message = failure.for_client or _refusal_of(self._mechanism)
        answer = response(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b"")
        return [_encoded(header, answer)]

    def _authenticated(self, connection: Connection, identity: Identity) -> None:
        """Begin the session of the client. Raise AuthenticationFailed if a re-authentication has another user."""
        assert self._mechanism is not None, "the client must choose a mechanism before it sends a token"
        is_again = self._identity is not None
        if self._identity is not None and self._identity.user != identity.user:
            raise AuthenticationFailed(
                f"the client authenticated as {self._identity.user!r}, and then again as {identity.user!r}"
            )
        self._identity, self._dialogue, self._state = identity, None, State.AUTHENTICATED
        self._ends_s = self._listener.session_end_s(self._mechanism.name, identity)
        credential = identity.credential or self._mechanism.name
        connection.client = connection.client.authenticated(identity.user, credential, identity.verifier_id)
        connection.request_bytes_max = self._request_bytes_max
        self._listener.logins.ended(connection)
        if self._ends_s is None:
            connection.dispatch = self._dispatch
        self._listener.counts.succeeded(is_again=is_again)

    def _begin_again(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        header, request = _decoded(buffer, start, end)
        mechanisms = self._listener.mechanisms
        is_soon = self._listener.clock.monotonic_s() - self._began_s < REAUTHENTICATION_S_MIN
        assert self._mechanism is not None, "only a client that has authenticated can authenticate again"
        if is_soon:
            connection.respond([_handshake_answer(header, ErrorCode.ILLEGAL_SASL_STATE, mechanisms)])
        elif request.mechanism != self._mechanism.name:
            answer = _handshake_answer(header, ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
            self._refuse(connection, [answer], "the client changed its mechanism when it authenticated again")
        else:
            self._begin_dialogue(connection, self._mechanism, header)

    def _serve(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Serve a request of a session with a limited lifetime; close the connection if the session has expired."""
        if self._ends_s is not None and self._listener.clock.monotonic_s() > self._ends_s:
            self._listener.counts.expired += 1
            raise CloseConnection("the SASL session has expired without a re-authentication")
        self._dispatch(connection, buffer, start, end)

    def _refuse(self, connection: Connection, answer: list[Part], why: str, deferred: _Deferred | None = None) -> None:
        """Count a refusal; after a delay that makes guessing passwords slow, send the response and close."""
        self._note_refusal(connection, why)
        respond, late = deferred or _deferred(connection)

        def end() -> None:
            if answer:
                respond(answer)
            connection.close()

        late.give_up = self._listener.timers.call_later(self._listener.refusal_delay_s, end).cancel

    def _note_refusal(self, connection: Connection, why: str) -> None:
        """Count and log a refusal, once for each attempt."""
        if not self._is_refused:
            self._is_refused = True
            self._listener.counts.failures[NO_MECHANISM if self._mechanism is None else self._mechanism.name] += 1
            log.info(
                "refused the SASL authentication of %s on the listener %s: %s",
                connection.peer,
                self._listener.name,
                why[:REASON_CHARS_MAX],
            )

    _STEPS: ClassVar[Mapping[tuple[State, Frame], _Step]] = {
        (State.NEW, Frame.API_VERSIONS): _tell_versions,
        (State.NEW, Frame.HANDSHAKE): _choose,
        (State.VERSIONED, Frame.HANDSHAKE): _choose,
        **dict.fromkeys(((State.BARE_TOKENS, frame) for frame in _ANY), _take_bare_token),
        (State.TOKENS, Frame.AUTHENTICATE): _take_token,
        **dict.fromkeys(((State.AUTHENTICATED, frame) for frame in _ANY), _serve),
        (State.AUTHENTICATED, Frame.HANDSHAKE): _begin_again,
        (State.TOKENS_AGAIN, Frame.AUTHENTICATE): _take_token,
    }


def _deferred(connection: Connection) -> _Deferred:
    """Defer the response; until it is sent, no request is read from the connection."""
    return _Deferred(connection.defer(), connection.deferred.pop())


def _frame(buffer: memoryview, start: int, end: int) -> Frame:
    if end - start < _API_KEY.size:
        return Frame.OTHER
    return _FRAMES.get(_API_KEY.unpack_from(buffer, start)[0], Frame.OTHER)


def _decoded(buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, Any]:
    header = parse_request_header(buffer, start, end)
    spec = API_SPECS[header.api_key]
    if not spec.supports(header.api_version):
        allowed = f"{spec.min_version} to {spec.max_version}"
        raise MalformedRequest(f"{spec.name} version {header.api_version} is not supported; allowed are {allowed}")
    return header, decode_request(header.api_key, header.api_version, buffer[header.body_start : end])


def _handshake_answer(header: RequestHeader, error: ErrorCode, mechanisms: Mapping[str, Mechanism]) -> bytearray:
    response = message_class("SaslHandshakeResponse")
    return _encoded(header, response(error_code=error, mechanisms=list(mechanisms)))


def _encoded(header: RequestHeader, response: Any) -> bytearray:
    return encode_response(response, header.api_version, header.correlation_id)


def _refusal_of(mechanism: Mechanism | None) -> str:
    name = "" if mechanism is None else mechanism.name
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {name}"
