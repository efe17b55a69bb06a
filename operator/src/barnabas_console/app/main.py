"""`barnabas console`: serve pages that show any Kafka cluster with the rights of the visitor."""

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from aiohttp import web

from barnabas_console.app.actions import Actions
from barnabas_console.app.collectors import Collectors, CollectorSettings
from barnabas_console.app.options import KubernetesOptions, Options, ProcessOptions, parse
from barnabas_console.app.runs import Runs
from barnabas_console.app.sessions import Sessions
from barnabas_console.app.streams import Streams
from barnabas_console.app.views import Home, Views
from barnabas_console.app.web import FORM_BYTES_MAX, Site, middleware
from barnabas_console.kubernetes.client import Kubernetes
from barnabas_console.registry.client import Registry, session_of
from barnabas_kafka.connection import connected_client
from barnabas_kafka.security import Credentials
from barnabas_kube.client import ApiClient
from barnabas_web.http_server import REFRESH_S
from barnabas_web.visitors import Protection

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
CONNECT_TIMEOUT_S: Final = 5.0
END_S: Final = 1.0
"""The seconds that open requests have when the process ends."""
CLIENT_ID: Final = "barnabas-console"
LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code: 0 after SIGTERM or SIGINT, 1 after a failure, 2 for wrong options."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    # kafka-python raises its errors, too, so its log would only repeat them; aiohttp logs requests of visitors.
    for name in ("kafka", "aiohttp.access", "aiohttp.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return asyncio.run(_serve(options))


async def _serve(options: ProcessOptions) -> int:
    """Serve the pages until SIGINT or SIGTERM; return the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as opened:
        kubernetes = await _kubernetes(options.kubernetes, opened)
        sites = [await _site(each, options.prefix, kubernetes, opened) for each in options.clusters]
        app = application(options, sites)
        runner = web.AppRunner(app, shutdown_timeout=END_S, handle_signals=False)
        await runner.setup()
        following = asyncio.create_task(_follow(options.protection))
        try:
            await _listen(runner, options)
            await stop.wait()
        except OSError as error:
            log.error("cannot listen on --listen-address %s:%d: %s", *options.listener, error.strerror)
            return EXIT_FAILED
        finally:
            following.cancel()
            for each in sites:
                each.close()
            await runner.cleanup()
    return 0


async def _kubernetes(options: KubernetesOptions | None, opened: AsyncExitStack) -> Kubernetes | None:
    if options is None:
        return None
    api = await opened.enter_async_context(ApiClient(options.access, CLIENT_ID))
    return Kubernetes(api, options.namespace, time.monotonic, is_visitors=options.is_visitors)


async def _site(options: Options, root: str, kubernetes: Kubernetes | None, opened: AsyncExitStack) -> Site:
    settings = CollectorSettings(partial(_connect, options.bootstrap), time.monotonic, options.interval_s, _now)
    registry = None
    if options.registry is not None:
        session = await opened.enter_async_context(session_of(options.registry))
        registry = Registry(options.registry, session, time.monotonic)
    return Site(options, root, Sessions(time.monotonic), Collectors(settings), registry, kubernetes)


async def _listen(runner: web.AppRunner, options: ProcessOptions) -> None:
    """Begin to listen. Raises OSError."""
    context = _tls(options.protection)
    await web.TCPSite(runner, options.listener.host or None, options.listener.port, ssl_context=context).start()
    port = runner.addresses[0][1]
    address = f"{options.protection.scheme}://{options.listener.host or '*'}:{port}{options.prefix}/"
    shown = "; ".join(each.bootstrap for each in options.clusters)
    log.info("serving %s with pages of the cluster at %s", address, shown)


def application(process: ProcessOptions, sites: Sequence[Site]) -> web.Application:
    """Return the application with the routes of all clusters."""
    app = web.Application(middlewares=[middleware(process, sites)], client_max_size=FORM_BYTES_MAX)
    app.add_routes(Home(process).routes())
    for each in sites:
        app.add_routes(
            [*Views(each, _now_ms).routes(), *Streams(each, time.monotonic).routes(), *Actions(each).routes()]
        )
        if each.kubernetes is not None:
            app.add_routes(Runs(each, each.kubernetes).routes())
    return app


def _now() -> datetime:
    return datetime.now(UTC)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _connect(bootstrap: str, credentials: Credentials) -> Any:
    return connected_client(bootstrap, CONNECT_TIMEOUT_S, CLIENT_ID, credentials)


def _tls(protection: Protection) -> ssl.SSLContext | None:
    """Return a context that takes for each handshake the certificate that is current then."""
    context = protection.context
    if context is not None:
        context.sni_callback = lambda handshake, _name, _context: _use(handshake, protection)
    return context


def _use(handshake: Any, protection: Protection) -> None:
    handshake.context = protection.context


async def _follow(protection: Protection) -> None:
    """Look for changed files of the certificate, in a thread, because a disk may hang."""
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(REFRESH_S)
            await asyncio.to_thread(protection.refresh)
