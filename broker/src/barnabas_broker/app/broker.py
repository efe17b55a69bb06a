"""A broker process: the metadata store, sockets, HTTP listener and signals around a `Node`."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from random import SystemRandom
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from barnabas_broker.app import loop_turns
from barnabas_broker.app.log_tasks import make_cleaner, make_helper, make_inspector
from barnabas_broker.app.loop_turns import LoopTimers, MeasuringSelector, SystemClock
from barnabas_broker.app.node import Node, make_authorizer
from barnabas_broker.app.supervision import PeriodicTask
from barnabas_broker.app.wiring import (
    NodeEnvironment,
    boot_id,
    is_open,
    limits_of,
    needs_scram_users,
    open_secrets,
    open_store,
    sasl_listeners,
    socket_settings,
)
from barnabas_broker.handlers.table import MESSAGE_HANDLERS, RAW_HANDLERS, guarded_handler, message_handler
from barnabas_broker.metadata.documents import MalformedDocument
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.replication.other_brokers import PeerNetwork
from barnabas_broker.security.sasl.listener_mechanisms import OAuthSettings, SaslEnvironment, login_between_brokers
from barnabas_broker.security.sasl.scram_credential import ScramUsers, StoredPasswords
from barnabas_broker.security.sasl.token_keys import KeysUnavailable, TokenKeys
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.server.listener import Listener
from barnabas_broker.server.peer_link import PeerLinks
from barnabas_broker.server.sasl_session import AuthenticationCounts, PasswordThread, SaslListener, begin_session
from barnabas_broker.server.transport import is_cached
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_core.clock import Clock, LoopClock
from barnabas_core.config.broker_config import WEB_FILES, BrokerConfig
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.listeners import reachable
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import in_turns

if TYPE_CHECKING:
    from barnabas_broker.app.tls_contexts import TlsContexts
    from barnabas_broker.security.sasl.key_set import TokenKey
    from barnabas_web.http_server import PageMaker


R = TypeVar("R")

log = logging.getLogger(__name__)

PROGRESS_S: Final = 5.0


async def in_daemon_thread(call: Callable[[], R]) -> R:
    """Run `call` in a daemon thread and return its result; the process may exit before the thread has ended."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[R] = loop.create_future()

    def resolve(set_outcome: Callable[[], None]) -> None:
        if not outcome.done():  # The waiting task may have been cancelled.
            set_outcome()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            failure = error
            loop.call_soon_threadsafe(resolve, lambda: outcome.set_exception(failure))
        else:
            loop.call_soon_threadsafe(resolve, lambda: outcome.set_result(result))

    threading.Thread(target=run, name="recovery", daemon=True).start()
    return await outcome


class Recovery:
    """The progress of recovery, for the HTTP pages and for a log line every PROGRESS_S seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_s = clock.monotonic_s()
        self._last: LoadProgress | None = None

    def advance(self, progress: LoadProgress) -> None:
        """Store the progress after each loaded log, and write a log line every PROGRESS_S seconds.

        The thread that loads the logs calls this method.
        """
        self._last = progress
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s >= PROGRESS_S:
            self._logged_s = now_s
            log.info(
                "the broker is loading its logs: %s, and %d bytes have been recovered",
                self.progress(),
                progress.bytes_recovered,
            )

    def progress(self) -> str:
        """Return the progress of loading the logs as the text for the HTTP pages."""
        last = self._last
        if last is None:
            return "starting"
        return f"log dir {last.log_dir} has loaded {last.partitions_done} of {last.partitions_total} partitions"


FETCH_S: Final = 10.0
"""The timeout in seconds of a whole request for a key set, and also of each network operation of the request."""


class KeySets:
    """The key sets of all listeners of a broker."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.all: list[TokenKeys] = []

    def open(self, settings: OAuthSettings) -> TokenKeys:
        """Return the still empty key set of a listener; `load` fetches the keys later. Raises InvalidConfig."""
        # This import slows the start, and only OAUTHBEARER needs it.
        from barnabas_broker.app.key_set_reader import read_key_set, trusting

        read = partial(read_key_set, settings.url, trusting(settings.trust), FETCH_S)
        keys = TokenKeys(settings.url, partial(self._fetch, read), settings.times, self._clock)
        self.all.append(keys)
        return keys

    async def load(self) -> None:
        """Fetch all key sets for the first time. Raises KeysUnavailable if a file cannot be read.

        If a URL does not respond, the broker only logs a warning, because clients without OAUTHBEARER need no keys.
        """
        for keys in self.all:
            try:
                await keys.load()
            except KeysUnavailable as error:
                if keys.url.startswith("file:"):
                    raise
                log.warning(
                    "the JWK set at %s could not be fetched: %s; no client can authenticate with OAUTHBEARER until the "
                    "broker has the keys",
                    keys.url,
                    error,
                )

    async def _fetch(self, read: "Callable[[], tuple[TokenKey, ...]]") -> "tuple[TokenKey, ...]":
        try:
            async with self._clock.timeout(FETCH_S):
                return await in_daemon_thread(read)
        except TimeoutError:
            raise KeysUnavailable(f"there was no complete response within {FETCH_S:g} s") from None


STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
ABANDON_S: Final = 5.0
CERTIFICATES_S: Final = 5.0
"""The seconds between two checks of certificates and their settings."""


class CannotStart(Exception):
    """The error of a broker that cannot start; the message has the reason and the remedy."""


class Broker:
    """A broker process; call `start`, then `wait_for_signal`, then `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        open_files_max: int,
        loop: asyncio.AbstractEventLoop,
        selector: MeasuringSelector,
    ) -> None:
        self._config = config
        self._open_files_max = open_files_max
        self._selector = selector
        self._loop = loop
        self._clock = SystemClock()
        self._timers = LoopTimers(loop)
        self._stopping = asyncio.Event()
        self._node: Node | None = None
        self._recovery = Recovery(self._clock)
        self._pages: dict[str, PageMaker] = {}
        """The pages of the HTTP listener by path; empty without an HTTP listener."""
        self._is_serving = False
        self._tls: TlsContexts | None = None
        """The TLS contexts; None if no listener has TLS."""
        self.failure: str | None = None
        """The reason why the broker must stop; None while the broker is healthy."""
        self._takedown: list[Callable[[], Awaitable[None] | None]] = []
        """The calls that undo the steps of the start, in the order of the steps; `stop` calls them in reverse order."""

    async def start(self) -> bool:
        """Start the broker; return False if a stop signal or a failure ended the start. Raises CannotStart."""
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._stopping.set)
        self._loop.set_exception_handler(self._callback_failed)
        starting = asyncio.ensure_future(self._start())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        if starting.cancelled():
            return False
        starting.result()
        return True

    async def _start(self) -> None:
        await self._start_http()
        try:
            self._tls = _open_tls(self._config)
            login_between_brokers(self._config, token_hex)
        except InvalidConfig as error:
            raise CannotStart(str(error)) from error
        node = self._node = await self._load()
        self._takedown.append(node.stop)
        node.handler_environment.scram = await self._open_scram()
        node.handler_environment.authorizer = make_authorizer(node.config, node.image, self._clock)
        dispatcher = Dispatcher(node.handler_environment, RAW_HANDLERS, guarded_handler)
        sasl = await self._make_sasl(node)
        counts = {each.name: AuthenticationCounts() for each in self._config.listeners.bound}
        counts.update((each.name, each.counts) for each in sasl)
        listener, ports = self._bind(dispatcher, node, sasl, counts)
        await self._join(node, ports)
        await node.host()
        cleaner = self._start_cleaner(node)
        if self._pages:
            self._show_metrics(node, dispatcher, listener, counts, cleaner)
        loop_turns.freeze()
        self._watch_certificates(node)
        self._warn_of_open_listeners()
        listener.start()
        node.supervisor.spawn(_import_handlers())
        self._takedown.append(node.hand_over)
        self._is_serving = True

    async def wait_for_signal(self) -> None:
        """Wait for SIGTERM or SIGINT, or for a failure of the broker."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Undo the steps of the start in reverse order."""
        self._is_serving = False
        while self._takedown:
            pending = self._takedown.pop()()
            if pending is not None:
                await pending

    async def abandon(self) -> None:
        """Release this broker's leases after a failure, without the other steps of `stop`."""
        try:
            async with asyncio.timeout(ABANDON_S):
                if self._node is not None:
                    await self._node.abandon()
        except TimeoutError:
            log.error(
                "the leases of this broker could not be released within %s s; other brokers take over when the "
                "leases expire",
                ABANDON_S,
            )

    async def _load(self) -> Node:
        config = self._config
        inspector = make_inspector(self._timers, self._clock)
        environment = NodeEnvironment(
            clock=self._clock,
            timers=self._timers,
            random=SystemRandom(),
            new_id=lambda: str(uuid4()),
            files=PosixFileSystem(),
            open_files_max=self._open_files_max,
            boot_id=boot_id(),
            inspector=inspector,
            make_links=self._make_links,
            is_cached=lambda piece: is_cached(*piece),
        )
        node = Node(config, await self._open_store(), environment, self._cannot_go_on)
        self._takedown.append(inspector.stop)
        try:
            await node.load(self._recovery.advance, in_daemon_thread)
        except StoreUnavailable as error:
            raise CannotStart(f"metadata.store={config.metadata_store}: {error}") from error
        except (LogDirRefused, MalformedDocument, ApiError) as error:
            raise CannotStart(str(error)) from error
        return node

    def _make_links(self, image: MetadataImage, config: Callable[[], BrokerConfig]) -> PeerNetwork:
        def address_of(broker_id: int) -> tuple[str, int] | None:
            registration = image.brokers.get(broker_id)
            name = config().listeners.inter_broker
            addresses = (each for each in registration.listeners if each.name == name) if registration else ()
            return next(((each.host, each.port) for each in addresses), None)

        login = login_between_brokers(self._config, token_hex)
        return PeerLinks(self._loop, address_of, self._tls.between_brokers if self._tls else _no_tls, login)

    def _cannot_go_on(self, reason: str) -> None:
        self.failure = reason
        self._stopping.set()

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception in a callback of the event loop.

        If a connection owns the callback, close the connection; otherwise stop the broker.
        """
        error, handle = context.get("exception"), context.get("handle")
        owner = getattr(getattr(handle, "_callback", None), "__self__", None)
        if error is None or handle is None or self._node is None:
            loop.default_exception_handler(context)
        elif isinstance(owner, Connection):
            log.error("the connection of %s was closed, because the broker has a bug", owner.peer, exc_info=error)
            owner.close("a bug")
        else:
            self._node.supervisor.raised("a callback failed", error)

    async def _open_store(self) -> MetadataStore:
        try:
            store = await open_store(self._config.metadata_store, self._clock, self._stopping)
        except StoreUnavailable as error:
            raise CannotStart(f"metadata.store={self._config.metadata_store}: {error}") from error
        self._takedown.append(store.close)
        return store

    async def _open_scram(self) -> ScramUsers | None:
        """Load the SCRAM users; return None if no listener has a SCRAM mechanism."""
        if not needs_scram_users(self._config):
            return None
        try:
            store = await open_secrets(self._config.metadata_store, self._clock)
            self._takedown.append(store.close)
            users = ScramUsers(store, asyncio.sleep, self._clock, self._timers)
            await users.load(token_bytes())
        except StoreUnavailable as error:
            raise CannotStart(f"metadata.store={self._config.metadata_store}: {error}") from error
        return users

    async def _make_sasl(self, node: Node) -> list[SaslListener]:
        scram, key_sets = node.handler_environment.scram, KeySets(self._clock)
        environment = SaslEnvironment({}, b"", token_hex, key_sets.open, self._clock.now_ms)
        if scram is not None:
            environment = environment._replace(credentials=scram.credentials, secret=scram.secret, shapes=scram.shapes)
        passwords = PasswordThread(self._loop)
        self._takedown.append(passwords.close)
        try:
            listeners = list(sasl_listeners(node.config, environment, self._clock, self._timers, passwords))
            await key_sets.load()
        except (InvalidConfig, KeysUnavailable) as error:
            raise CannotStart(str(error)) from error
        for keys in key_sets.all:
            node.supervisor.supervise(f"keys of {keys.url}", keys.follow())
        return listeners

    def _bind(
        self,
        dispatcher: Dispatcher,
        node: Node,
        sasl: Sequence[SaslListener],
        counts: Mapping[str, AuthenticationCounts],
    ) -> tuple[Listener, list[int]]:
        config = self._config
        limits = limits_of(node.current_config, self._loop)
        sessions = {each.name: partial(begin_session, each) for each in sasl}
        wait_ms = node.handler_environment.quotas.connection_wait_ms
        tls = self._tls.server if self._tls else _no_tls
        listener = Listener(self._loop, dispatcher, socket_settings(config), limits, tls, sessions, counts, wait_ms)
        self._takedown.append(listener.close)
        scram = node.handler_environment.scram
        if scram is not None:
            scram.on_change = listener.close_authenticated
            node.supervisor.supervise("SCRAM credentials", scram.follow())
        ports = []
        for bound in config.listeners.bound:
            try:
                ports.append(listener.bind(bound.name, bound.host, bound.port))
            except OSError as error:
                raise CannotStart(f"listeners={bound}: {error}") from error
        return listener, ports

    async def _join(self, node: Node, ports: Sequence[int]) -> None:
        host = cache(socket.getfqdn)  # It may ask DNS, and most listeners advertise a host.
        try:
            await node.join(lambda listeners: reachable(listeners.advertised, host, ports), uuid4())
        except (ApiError, StoreUnavailable) as error:
            raise CannotStart(str(error)) from error

    def _start_cleaner(self, node: Node) -> LogCleaner:
        environment = node.handler_environment
        helper = make_helper(self._timers, node.current_config)
        cleaner = make_cleaner(
            environment.logs, environment.replicas, helper, self._timers, self._clock, node.current_config
        )
        node.start_cleaner(cleaner)
        return cleaner

    def _watch_certificates(self, node: Node) -> None:
        """Reload certificates when files or settings change; refuse settings with certificates that cannot be used."""
        passwords = StoredPasswords(partial(open_secrets, self._config.metadata_store, self._clock), token_bytes)
        node.handler_environment.passwords = passwords
        tls = self._tls
        if tls is None:
            return

        async def check(config: BrokerConfig) -> None:
            tls.check(await passwords.opened(config))

        async def refresh() -> None:
            await asyncio.to_thread(tls.refresh, await passwords.opened(node.current_config()))

        node.handler_environment.check_certificates = check
        node.periodic_tasks.start([PeriodicTask("certificates", CERTIFICATES_S, refresh, 0)])

    def _warn_of_open_listeners(self) -> None:
        for endpoint in self._config.listeners.bound:
            if is_open(self._config, endpoint):
                log.warning(
                    "listener %s has no authentication: every client that can connect has all rights."
                    " Bind the listener to 127.0.0.1, or see docs/how-to/security.md",
                    endpoint,
                )

    async def _start_http(self) -> None:
        """Start the HTTP listener, if one is set, before all else, so that probes see the progress of the start."""
        host, _, port = self._config.http_listener.rpartition(":")
        if not port:
            return
        # The imports are here because h11 and the metrics take 0.7 MB.
        from barnabas_broker.app.pages import PROBES, starting_pages
        from barnabas_web.http_server import HttpServer
        from barnabas_web.visitors import FileRefused, Protection

        self._pages.update(starting_pages(self._recovery.progress))
        try:
            protection = Protection(self._config.web_files, WEB_FILES)
        except FileRefused as error:
            raise CannotStart(str(error)) from error
        http = HttpServer(self._pages, PROBES, protection)
        try:
            bound = await http.start(host, int(port))
        except OSError as error:
            raise CannotStart(f"http.listener={self._config.http_listener}: {error}") from error
        self._takedown.append(http.close)
        log.info("metrics at %s://%s:%d/metrics", protection.scheme, host or socket.getfqdn(), bound)

    def _show_metrics(
        self,
        node: Node,
        dispatcher: Dispatcher,
        listener: Listener,
        counts: Mapping[str, AuthenticationCounts],
        cleaner: LogCleaner,
    ) -> None:
        """Replace the pages of the start by those of a broker that serves clients."""
        from barnabas_broker.app.pages import make_pages
        from barnabas_broker.server.metrics.broker_families import Traffic

        traffic = Traffic(
            dispatcher.stats.values(), lambda: len(listener.connections), self._selector.idle_share, counts
        )
        turns, why_unhealthy = self._selector.turns, lambda: self.failure
        environment = node.handler_environment
        self._pages.update(make_pages(environment, traffic, turns, cleaner, self._why_not_serving, why_unhealthy))

    def _why_not_serving(self) -> str | None:
        return None if self._is_serving else "starting or stopping"


async def _import_handlers() -> None:
    """Import the handlers that no request has asked for yet, one in a turn of the loop.

    The imports come after the start of the listeners, because the first clients need few of these modules. A client
    waits for one import at most, which takes 4 ms, besides those that its own request needs.
    """
    async for api_key in in_turns(MESSAGE_HANDLERS, 1):
        message_handler(api_key)
    loop_turns.freeze()


def _open_tls(config: BrokerConfig) -> "TlsContexts | None":
    """Return the TLS contexts; None if no listener has TLS. Raises InvalidConfig."""
    if not any(config.listener_security(each.name).protocol.has_tls for each in config.listeners.bound):
        return None
    # The import is here because cryptography takes 9 MB.
    from barnabas_broker.app.tls_contexts import TlsContexts

    return TlsContexts(config)


def _no_tls(*_: object) -> None:
    """Return no context for a listener without TLS."""
