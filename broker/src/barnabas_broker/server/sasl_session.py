"""Authenticate one connection by SASL; if the session can expire, check at each request that it has not expired.

`SaslSession._STEPS` is the whole protocol (KIP-43, KIP-152, KIP-368): what each frame does in each state. A frame
without a step in the current state closes the connection without a response, because no Kafka client sends such a
frame.
"""

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.security.sasl.scram import (
    AuthenticationFailed,
    Dialogue,
    Identity,
    Mechanism,
    ServerToken,
    SlowCheck,
)
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.connection import Connection, Dispatch
from barnabas_broker.server.connection_bounds import NetworkQueue, Newcomers, network_of
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
from barnabas_core.clock import Clock, Timers
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import ACCEPTED_CONNECTIONS

DEADLINE_S: Final = 30.0
"""The seconds in which a client must authenticate; Kafka allows connections.max.idle.ms, ten minutes by default."""
SESSION_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
"""The longest lifetime of a session in ms; Java clients count nanoseconds in a long, which must not overflow."""

TLS: Final = "TLS"
"""The metric label of clients whose TLS handshake failed."""
NO_MECHANISM: Final = "none"
"""The metric label of clients that were refused before they chose a mechanism."""

SUBMITTED_MAX: Final = 2
"""The passwords that the thread has at once: it does not wait for the event loop between two of them."""

Conclusion = Callable[[Callable[[], bytes]], None]
"""A function that takes the outcome of a computation.

Its argument is a function that returns the computed bytes, or raises the error of the computation.
"""
InThread = Callable[[str, Callable[[], bytes], Conclusion], Callable[[], object]]
"""A function that runs a computation in a thread, and then passes the outcome to a `Conclusion` on the event loop.

The first argument is the address of the client. The result is a function that gives up the computation and the
`Conclusion`, and frees both.
"""


class PasswordThread:
    """A thread that hashes one password at a time, and starts with the first one.

    Addresses take turns, so that one that guesses passwords delays others by one password each. Hashing releases the
    GIL, so the event loop serves other clients meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._waiting: NetworkQueue[_Password] = NetworkQueue()
        self._submitted = 0

    def __call__(self, address: str, compute: Callable[[], bytes], conclude: Conclusion) -> Callable[[], None]:
        """Run `compute` in the thread, then `conclude` on the event loop; return a function that gives both up."""
        network, password = network_of(address), _Password(compute, conclude)
        self._waiting.add(network, password)
        self._submit()
        return lambda: self._give_up(network, password)

    def close(self) -> None:
        """End the thread; passwords that wait are not hashed any more."""
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self) -> None:
        while self._waiting and self._submitted < SUBMITTED_MAX:
            password = self._waiting.take()
            self._submitted += 1
            done = self._thread.submit(password.run)
            done.add_done_callback(partial(self._done, password))

    def _done(self, password: "_Password", done: Future[bytes]) -> None:
        if not done.cancelled():
            with suppress(RuntimeError):  # The event loop may be closed already.
                self._loop.call_soon_threadsafe(self._conclude, password, done.result)

    def _conclude(self, password: "_Password", result: Callable[[], bytes]) -> None:
        self._submitted -= 1
        self._submit()
        conclude = password.conclude
        password.forget()
        if conclude is not None:
            conclude(result)

    def _give_up(self, network: str, password: "_Password") -> None:
        password.forget()
        self._waiting.discard(network, password)


class _Password(msgspec.Struct, eq=False):
    """A password that the thread hashes; both fields are None once that is done or its client has gone."""

    compute: Callable[[], bytes] | None
    conclude: Conclusion | None

    def forget(self) -> None:
        """Free the password and its connection."""
        self.compute = self.conclude = None

    def run(self) -> bytes:
        """Compute the hash; compute nothing if the client has gone."""
        compute = self.compute
        return b"" if compute is None else compute()


class Logins:
    """The connections of a listener that have not authenticated yet; they are closed if they take too long."""

    def __init__(self, timers: Timers, clock: Clock, connections_max: int | None, deadline_s: float) -> None:
        self._timers = timers
        self._clock = clock
        self.connections: Newcomers[Connection] = Newcomers(connections_max)
        self._deadline_s = deadline_s
        self._is_timed = False

    def began(self, connection: Connection) -> None:
        """Add a new connection; close one of the address with the most connections if there are too many."""
        connection.when_closed.append(self.ended)
        one_too_many = self.connections.add(connection, connection.client.host, self._clock.monotonic_s())
        if one_too_many is not None:
            one_too_many.close("too many connections to the listener between brokers have not authenticated")
        self._check_at_deadline()

    def ended(self, connection: Connection) -> None:
        """Remove a connection that has authenticated or is closed."""
        self.connections.discard(connection)

    def _check_at_deadline(self) -> None:
        since_s = self.connections.oldest_since_s
        if since_s is not None and not self._is_timed:
            self._is_timed = True
            wait_s = max(since_s + self._deadline_s - self._clock.monotonic_s(), 0)
            self._timers.call_later(wait_s, self._check)

    def _check(self) -> None:
        """Close connections that are too late, a limited number in a turn of the event loop."""
        self._is_timed = False
        late = self.connections.added_before(self._clock.monotonic_s() - self._deadline_s)
        for connection in list(islice(late, ACCEPTED_CONNECTIONS)):
            connection.close(f"the client has not authenticated within {self._deadline_s:g} s")
        self._check_at_deadline()


class AuthenticationCounts(msgspec.Struct):
    """The counts of successful and failed authentications and of expired sessions on one listener since the start."""

    succeeded_first: int = 0
    succeeded_again: int = 0
    failures: Counter[str] = msgspec.field(default_factory=lambda: Counter({TLS: 0}))
    """The number of refused clients by mechanism."""
    expired: int = 0

    @property
    def failed(self) -> int:
        """The number of clients that were refused."""
        return self.failures.total()

    def succeeded(self, *, is_again: bool) -> None:
        """Count a client that has authenticated; `is_again` is True for a re-authentication."""
        if is_again:
            self.succeeded_again += 1
        else:
            self.succeeded_first += 1


class SaslListener(msgspec.Struct, frozen=True):
    """A listener whose clients authenticate by SASL."""

    name: str
    mechanisms: Mapping[str, Mechanism]
    """The enabled mechanisms by name, in the order in which SaslHandshake lists them."""
    session_ms_max: Mapping[str, int]
    """The setting connections.max.reauth.ms of each mechanism; 0 means no limit."""
    refusal_delay_s: float
    frame_bytes_max: int
    clock: Clock
    timers: Timers
    in_thread: InThread
    """A function that runs the slow checks of passwords."""
    logins: Logins
    counts: AuthenticationCounts = msgspec.field(default_factory=AuthenticationCounts)

    def session_end_s(self, mechanism: str, identity: Identity) -> float | None:
        """Return the monotonic time at which a session that begins now ends; None if it never ends (KIP-368)."""
        bounds_ms: list[int] = []
        if self.session_ms_max[mechanism] > 0:
            bounds_ms.append(self.session_ms_max[mechanism])
        if identity.expires_at_ms is not None:
            bounds_ms.append(max(identity.expires_at_ms - self.clock.now_ms(), 0))
        return self.clock.monotonic_s() + min(SESSION_MS_MAX, *bounds_ms) / 1000 if bounds_ms else None


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

    send: Callable[[list[Part]], None]
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

    def _answer_versions(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
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
        connection.answer([_handshake_answer(header, ErrorCode.NONE, self._listener.mechanisms)])

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
            found = self._dialogue.answer(token)
            if isinstance(found, SlowCheck):
                self._check_slowly(connection, header, found)
            else:
                connection.answer(self._answer(connection, header, found))
        except AuthenticationFailed as failure:
            self._refuse(connection, self._refusal(header, failure), str(failure))

    def _check_slowly(self, connection: Connection, header: RequestHeader | None, check: SlowCheck) -> None:
        deferred = _deferred(connection)

        def conclude(result: Callable[[], bytes]) -> None:
            try:
                deferred.send(self._answer(connection, header, check.conclude(result())))
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
            connection.answer([_handshake_answer(header, ErrorCode.ILLEGAL_SASL_STATE, mechanisms)])
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
        send, late = deferred or _deferred(connection)

        def end() -> None:
            if answer:
                send(answer)
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
        (State.NEW, Frame.API_VERSIONS): _answer_versions,
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
