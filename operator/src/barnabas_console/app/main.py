"""`barnabas console`: serve pages that show any Kafka cluster with the rights of the visitor."""

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from aiohttp import web

from barnabas_console.app.actions import Actions
from barnabas_console.app.collectors import Collectors, CollectorSettings
from barnabas_console.app.options import Options, parse
from barnabas_console.app.sessions import Sessions
from barnabas_console.app.streams import Streams
from barnabas_console.app.views import Views
from barnabas_console.app.web import FORM_BYTES_MAX, Site, middleware
from barnabas_console.registry.client import Registry, session_of
from barnabas_kafka.connection import connected_client
from barnabas_kafka.security import Credentials
from barnabas_web.http_server import LOOK_S
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


async def _serve(options: Options) -> int:
    """Serve the pages until SIGINT or SIGTERM; return the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connect = partial(_connect, options.bootstrap)
    settings = CollectorSettings(connect, time.monotonic, options.interval_s)
    site = Site(options, Sessions(time.monotonic), Collectors(settings))
    session = None if options.registry is None else session_of(options.registry)
    registry = Registry(options.registry, session, time.monotonic) if options.registry and session else None
    runner = web.AppRunner(application(site, registry), shutdown_timeout=END_S, handle_signals=False)
    await runner.setup()
    following = asyncio.create_task(_follow(options.protection))
    try:
        listening = web.TCPSite(
            runner, options.listener.host or None, options.listener.port, ssl_context=_tls(options.protection)
        )
        await listening.start()
        port = runner.addresses[0][1]
        address = f"{options.protection.scheme}://{options.listener.host or '*'}:{port}{options.prefix}/"
        log.info("serving %s with pages of the cluster at %s", address, options.bootstrap)
        await stop.wait()
    except OSError as error:
        log.error("cannot listen on --listen-address %s:%d: %s", *options.listener, error.strerror)
        return EXIT_FAILED
    finally:
        following.cancel()
        site.close()
        await runner.cleanup()
        if session is not None:
            await session.close()
    return 0


def application(site: Site, registry: Registry | None) -> web.Application:
    """Return the application with all routes."""
    app = web.Application(middlewares=[middleware(site)], client_max_size=FORM_BYTES_MAX)
    streams = Streams(site, registry, time.monotonic)
    app.add_routes([*Views(site).routes(), *streams.routes(), *Actions(site).routes()])
    return app


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
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(protection.refresh)
