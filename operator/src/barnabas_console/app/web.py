"""The parts that all pages share: sessions, headers, refusals, tokens of forms, HTML or JSON, requests to brokers."""

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import htpy as h
import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware
from kafka.errors import KafkaError
from multidict import MultiMapping

from barnabas_console.app.collectors import FIRST_WAIT_S, Collector, Collectors, TooManyPrincipals
from barnabas_console.app.options import Options, ProcessOptions
from barnabas_console.app.sessions import SESSION_S, Principal, Session, Sessions
from barnabas_console.html import messages, pages
from barnabas_console.html.frame import Frame, link
from barnabas_console.kubernetes.client import Kubernetes, KubernetesRefused, checked_token
from barnabas_console.model.details import Manifest, Roll
from barnabas_console.model.inputs import InvalidInput
from barnabas_console.model.snapshot import Snapshot
from barnabas_console.registry.client import Registry
from barnabas_kafka.command_config import BEARER, LoginConfig
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import MECHANISMS

log = logging.getLogger(__name__)
audit = logging.getLogger("barnabas_console.audit")

COOKIE: Final = "barnabas_console"
KUBERNETES_TOKEN: Final = "X-Kubernetes-Token"
"""The header by which scripts send the token for the Kubernetes API."""
REFRESHES: Final = "HX-Request"
"""The header of requests by which an open page is refreshed; a redirect would put another page into it."""
LOGINS_MAX: Final = 4
"""The logins that are tried at one time; each may cost the brokers much work."""
WORKERS: Final = 16
ASKING_MAX: Final = 64
"""The requests of pages that may wait for brokers at one time."""
POLL_S: Final = 0.01
FORM_BYTES_MAX: Final = 1 << 20
OFFERED: Final = (*reversed(MECHANISMS), BEARER)
STATIC: Final = Path(__file__).parent.parent / "static"
NOBODY: Final = "nobody, because this cluster asks for no login"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SESSION: Final = web.RequestKey("session", Session)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Refusal(Exception):
    """The error that a request gets no page, with its status and a sentence for the visitor."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status: Final = status


class Visit(NamedTuple):
    """A request by a visitor whose cluster has been read."""

    request: web.Request
    session: Session
    collector: Collector
    snapshot: Snapshot
    frame: Frame
    kubernetes_token: str | None
    """The visitor's token for the Kubernetes API, or None if there is none."""


class Site:
    """The state that the pages of one cluster share; `root` is the path of the console's first page."""

    def __init__(
        self,
        options: Options,
        root: str,
        sessions: Sessions,
        collectors: Collectors,
        registry: Registry | None,
        kubernetes: Kubernetes | None,
    ) -> None:
        self.options: Final = options
        self.kubernetes: Final = kubernetes
        self.registry: Final = registry
        self._root = root
        self.sessions: Final = sessions
        self.collectors: Final = collectors
        self._workers = ThreadPoolExecutor(WORKERS, "asking")
        self._asking = 0
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._shared = self._own_session()

    def _own_session(self) -> Session | None:
        own = self.options.own
        if own is None:
            return None
        name = "the console's own account" if own.authenticates else NOBODY
        return self.sessions.open(Principal(name, "own", own), "own")

    def has(self, path: str) -> bool:
        """True if the path is one of this cluster's pages."""
        return path == self.options.prefix or path.startswith(f"{self.options.prefix}/")

    async def ask(self, work: Callable[[], T]) -> T:
        """Run requests to brokers in a thread. Raises Refusal if they fail, or if too many others wait."""
        if self._asking >= ASKING_MAX:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{ASKING_MAX} requests wait for the brokers; try again later"
            )
        self._asking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except (ClusterUnreachable, KafkaError) as error:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the brokers refuse: {_words_of(error)}") from error
        finally:
            self._asking -= 1

    def is_open(self, session: Session) -> bool:
        """True if the session has not ended; that of the console's own account never ends."""
        return self.is_shared(session) or self.sessions.find(session.session_id) is not None

    def is_shared(self, session: Session) -> bool:
        """True if the session is that of the console's own account, which all visitors have."""
        return session is self._shared

    def close(self) -> None:
        """End all collectors and threads, without waiting for brokers that hang."""
        self.collectors.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def log_in(self, mechanism: str, username: str, password: str, session_id: str = "") -> Session:
        """Begin a session if the brokers accept the credentials. Raises Refusal with their reason."""
        assert self.options.config is not None  # Otherwise all visitors have the shared session.
        credentials = LoginConfig(self.options.config, mechanism, username, password)
        name = username or "the owner of a token"
        principal = Principal(name, self.sessions.digest("principal", mechanism, username, password), credentials)
        if self._logins.locked():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{LOGINS_MAX} others log in now; try again in a few seconds")
        async with self._logins:
            collector = await self._first_round(principal, lambda each: each.is_accepted)
        if not collector.is_accepted:
            audit.warning("login of %r refused: %s", name, collector.sight.failure)
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"the brokers refuse the login: {collector.sight.failure}")
        audit.info("login of %r", name)
        return self.sessions.open(principal, session_id)

    async def _first_round(self, principal: Principal, is_enough: Callable[[Collector], bool]) -> Collector:
        """Return the collector of a principal if it has enough, after its first round, or after FIRST_WAIT_S."""
        try:
            collector = self.collectors.of(principal)
        except TooManyPrincipals:
            text = f"{len(self.collectors)} users look at the cluster now, which is the limit; try again in a minute"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WAIT_S):
                while not is_enough(collector) and not collector.first.is_set():
                    await asyncio.sleep(POLL_S)
        return collector

    async def session_of(self, request: web.Request) -> Session | None:
        """Return the session of a request, by its header or its cookie. Raises Refusal for a wrong password."""
        if self._shared is not None:
            return self._shared
        given = request.headers.get("Authorization", "")
        if not given:
            return self.sessions.of_cookie(request.cookies.get(COOKIE, ""))
        mechanism, username, password = _credentials(given, self.options.mechanism or OFFERED[0])
        session_id = "header " + self.sessions.digest("header", mechanism, username, password)
        return self.sessions.find(session_id) or await self.log_in(mechanism, username, password, session_id)

    async def visit(self, request: web.Request) -> Visit:
        """Return the visit of a request that has a session. Raises Refusal if the cluster cannot be read."""
        session = request[SESSION]
        collector = await self._first_round(session.principal, lambda each: each.sight.snapshot is not None)
        sight = collector.sight
        if collector.is_refused and not self.is_shared(session):
            self.sessions.close_all_of(session.principal)
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"the brokers accept this login no more: {sight.failure}")
        if sight.snapshot is None:
            why = sight.failure or f"reading it takes more than {FIRST_WAIT_S:.0f} s; load the page again"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the cluster cannot be read: {why}")
        failures = (*([sight.failure] if sight.failure else []), *sight.snapshot.seen.failures)
        frame = self.frame(request)._replace(
            cluster=sight.snapshot.seen.cluster_id, age_s=collector.age_s, failures=failures
        )
        return Visit(request, session, collector, sight.snapshot, frame, self._kubernetes_token(request, session))

    def _kubernetes_token(self, request: web.Request, session: Session) -> str | None:
        """Return the token of the session, or of a script's header; none where the console's own account looks."""
        if self.kubernetes is None or not self.kubernetes.is_visitors:
            return None
        return checked_token(request.headers.get(KUBERNETES_TOKEN, "")) or session.kubernetes_token or None

    async def manifest(self, visit: Visit, kind: str, name: str) -> Manifest | None:
        """Return the resource that declares a topic or group, if there is one. Raises KubernetesRefused."""
        if self.kubernetes is None:
            return None
        return await self.kubernetes.declared(kind, name, visit.snapshot.seen.cluster_id, visit.kubernetes_token)

    async def roll(self, visit: Visit) -> Roll | None:
        """Return the roll of the cluster, if it has one. Raises KubernetesRefused."""
        if self.kubernetes is None:
            return None
        return await self.kubernetes.roll(visit.snapshot.seen.cluster_id, visit.kubernetes_token)

    def frame(self, request: web.Request) -> Frame:
        """Return the frame of a page, as far as it is known without the cluster."""
        session = request.get(SESSION)
        return Frame(
            root=self._root,
            name=self.options.name,
            prefix=self.options.prefix,
            address=request.rel_url.raw_path_qs.removeprefix(self.options.prefix),
            who=session.principal.name if session is not None else "",
            csrf=session.csrf if session is not None else "",
            may_log_out=session is not None and not self.is_shared(session),
            may_write=self.options.write,
            has_runs=self.kubernetes is not None,
            asks_token=self.kubernetes is not None and self.kubernetes.is_visitors,
        )


def _credentials(header: str, mechanism: str) -> tuple[str, str, str]:
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return BEARER, "", value.strip()
    if scheme.lower() == "basic":
        try:
            username, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if colon:
            return mechanism, username, password
    allowed = "Basic with user and password, or Bearer with a token"
    raise Refusal(HTTPStatus.BAD_REQUEST, f"Authorization={scheme!r}; allowed: {allowed}")


def _words_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def or_reason(asked: Awaitable[T]) -> T | str:
    """Return what is asked for, or why it is not known, where a page is shown in any case."""
    try:
        return await asked
    except (KubernetesRefused, Refusal) as error:
        return str(error)


def wants_json(request: web.Request) -> bool:
    """True if the client asks for JSON and not for a page."""
    accepted = request.headers.get("Accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def wants_events(request: web.Request) -> bool:
    """True if the client is a browser that asks for the events of a page."""
    return "text/event-stream" in request.headers.get("Accept", "")


def reply(request: web.Request, data: object, page: h.Element, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """Return the answer as JSON or as a page."""
    if wants_json(request):
        body = msgspec.json.encode(plain(data))
        return web.Response(status=status, body=body, content_type="application/json", headers={"Vary": "Accept"})
    text = str(page)
    return web.Response(status=status, text=text, content_type="text/html", headers={"Vary": "Accept"})


def plain(value: object) -> Any:
    """Return a value as JSON has it; a NamedTuple becomes an object."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value


def query_of(request: web.Request) -> dict[str, str]:
    """Return the fields of the address. Raises InvalidInput if one is given twice."""
    return once(request.query)


def once(given: MultiMapping[Any]) -> dict[str, str]:
    """Return the fields of an address or a form. Raises InvalidInput if one is given twice, or is a file."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in found or not isinstance(value, str):
            raise InvalidInput(name, str(value), "one text")
        found[name] = value
    return found


async def form_of(request: web.Request) -> dict[str, str]:
    """Return the fields of a form of this session. Raises Refusal if another site has sent it."""
    fields = once(await request.post())
    token = fields.pop("csrf", "")
    if not hmac.compare_digest(token.encode(), request[SESSION].csrf.encode()):
        raise Refusal(HTTPStatus.FORBIDDEN, "the form does not belong to this session; load its page again")
    return fields


def middleware(process: ProcessOptions, sites: Sequence[Site]) -> Middleware:
    """Return the middleware that gives each request its session, and each answer its headers."""
    is_local = _is_loopback(process.listener.host)

    @web.middleware
    async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
        site = next((each for each in sites if each.has(request.path)), None)
        frame = partial(home_frame, process.prefix, request) if site is None else partial(site.frame, request)
        try:
            _check_origin(request, is_local=is_local)
            answer = await (handler(request) if site is None else _with_session(site, request, handler))
        except web.HTTPException as error:
            answer = _refused(frame(), request, Refusal(HTTPStatus(error.status), _words_of(error)))
            if error.status < HTTPStatus.BAD_REQUEST:
                raise
        except InvalidInput as error:
            answer = _refused(frame(), request, Refusal(HTTPStatus.BAD_REQUEST, str(error)))
        except KubernetesRefused as error:
            answer = _refused(frame(), request, Refusal(error.status, str(error)))
        except Refusal as error:
            answer = _refused(frame(), request, error)
        except Exception:  # A mistake of ours; the visitor gets no part of it.
            log.exception("the page %s failed", request.path)
            text = "the console has made a mistake, which its log describes"
            answer = _refused(frame(), request, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, text))
        if not answer.prepared:
            answer.headers.update({name: value for name, value in HEADERS.items() if name not in answer.headers})
        return answer

    return around


def home_frame(root: str, request: web.Request) -> Frame:
    """Return the frame of a page that belongs to no cluster."""
    return Frame(root=root, prefix=root, address=request.rel_url.raw_path_qs.removeprefix(root))


async def _with_session(site: Site, request: web.Request, handler: Handler) -> web.StreamResponse:
    path = request.path.removeprefix(site.options.prefix)
    if path in ("/login", "/healthz") or path.startswith("/static/"):
        return await handler(request)
    session = await site.session_of(request)
    if session is None:
        return _log_in_first(site, request)
    request[SESSION] = session
    return await handler(request)


def _log_in_first(site: Site, request: web.Request) -> web.StreamResponse:
    if wants_events(request):
        raise Refusal(HTTPStatus.UNAUTHORIZED, "the session has ended; log in again")
    if wants_json(request) or request.method != "GET":
        raise Refusal(HTTPStatus.UNAUTHORIZED, "log in with the header Authorization: Basic or Bearer, or at /login")
    back = request.rel_url.raw_path_qs.removeprefix(site.options.prefix)
    location = link(site.frame(request), "/login", back="" if back == "/" else back)
    if REFRESHES in request.headers:
        return web.Response(status=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": location})
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": location})


def _refused(frame: Frame, request: web.Request, refusal: Refusal) -> web.Response:
    if wants_events(request):
        return web.Response(body=messages.refused(str(refusal)), content_type="text/event-stream", charset="utf-8")
    page = pages.problem(frame, refusal.status.phrase, str(refusal))
    answer = reply(request, {"error": str(refusal)}, page, refusal.status)
    if refusal.status == HTTPStatus.UNAUTHORIZED and wants_json(request):
        answer.headers["WWW-Authenticate"] = 'Basic realm="Kafka user", charset="UTF-8"'
    return answer


def _check_origin(request: web.Request, *, is_local: bool) -> None:
    """Raise Refusal for a form of another site, and for a name that another site may have given to this machine."""
    if is_local and not _is_loopback(request.host.rpartition(":")[0] or request.host):
        text = f"Host={request.host!r}; allowed: localhost and 127.0.0.1, because the console listens only there"
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, text)
    if request.method == "POST":
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        origin = request.headers.get("Origin", "")
        is_foreign = origin != "" and origin.partition("://")[2] != request.host
        if site not in ("same-origin", "none") or is_foreign:
            raise Refusal(HTTPStatus.FORBIDDEN, "the form comes from another site")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.partition(":")[0].lower() == "localhost"


def with_cookie(site: Site, request: web.Request, session: Session) -> web.Response:
    """Return an empty answer that sets the cookie of a session; scripts and other sites do not get it."""
    answer = web.Response(status=HTTPStatus.SEE_OTHER)
    is_secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    answer.set_cookie(
        COOKIE,
        site.sessions.cookie_of(session),
        path=site.options.prefix or "/",
        max_age=int(SESSION_S),
        httponly=True,
        secure=is_secure,
        samesite="Lax",
    )
    return answer
