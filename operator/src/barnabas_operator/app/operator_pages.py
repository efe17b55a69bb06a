"""The servers of the operator: `/metrics`, `/healthz` and `/readyz`, and the webhook for the API server."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from barnabas_operator.admission import webhook
from barnabas_operator.app.operator_parts import Operator
from barnabas_web.http_server import HttpServer, Page, text_page
from barnabas_web.protection import Protection

PROBES: Final = frozenset({"/healthz", "/readyz"})
METRICS_TYPE: Final = "text/plain; charset=utf-8"
WEBHOOK_PORT: Final = 9443
REVIEW_BYTES_MAX: Final = 8 << 20
"""The size limit of an admission review with the old and the new object. The API server accepts objects of 3 MiB."""
RELOAD_S: Final = 60.0
RELOAD_FAILED: Final = (
    "the webhook keeps its old certificate: tls.crt and tls.key in %s cannot be read: %s;"
    " if this repeats, recreate the Secret with these files (by helm upgrade or cert-manager)"
)

log = logging.getLogger(__name__)


class CannotServe(Exception):
    """The error that an address cannot be bound, or a certificate cannot be read; the message has the reason."""


async def serve_pages(operator: Operator, listener: str, protection: Protection) -> HttpServer:
    """Serve the pages at `HOST:PORT`; the caller must stop the returned server.

    Raises CannotServe if the address is invalid or cannot be bound.
    """

    async def metrics() -> Page:
        return Page(HTTPStatus.OK, METRICS_TYPE, await operator.metrics.page())

    async def healthz() -> Page:
        reason = operator.why_dead
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, f"{reason or 'ok'}\n")

    async def readyz() -> Page:
        if operator.workers is None:
            return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "starting\n")
        return text_page(HTTPStatus.OK, "ok\n")

    server = HttpServer({"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}, PROBES, protection)
    host, _, port = listener.rpartition(":")
    try:
        await server.start(host.strip("[]"), int(port))
    except OSError as error:
        raise _cannot_listen(host, int(port), error) from error
    return server


async def serve_webhook(operator: Operator, certificates: Path) -> web.AppRunner:
    """Serve the admission webhook over TLS, with the files `tls.crt` and `tls.key` in the directory `certificates`.

    Both files are reloaded regularly. Raises CannotServe if a file cannot be read, or the port cannot be bound.
    """
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        _load(tls, certificates)
    except (OSError, ValueError) as error:
        raise CannotServe(
            f"tls.crt and tls.key in {certificates} (WEBHOOK_CERTIFICATES) cannot be read: {error}"
        ) from error
    app = webhook_app(operator)
    app.cleanup_ctx.append(lambda _: reloading(tls, certificates))
    return await _listen(app, "0.0.0.0", WEBHOOK_PORT, tls)


def webhook_app(operator: Operator) -> web.Application:
    """Return the application that answers the API server's admission reviews at `/validate`."""

    async def validate(request: web.Request) -> web.Response:
        workers, dry_run = operator.workers, operator.dry_run
        if workers is None or dry_run is None:
            raise web.HTTPServiceUnavailable(text="starting")
        asked = await request.json()
        said = await webhook.answer(asked, operator.inventory, workers.state_of, dry_run, operator.preview)
        return web.json_response(said)

    app = web.Application(client_max_size=REVIEW_BYTES_MAX)
    app.add_routes([web.post("/validate", validate)])
    return app


async def _listen(app: web.Application, host: str, port: int, tls: ssl.SSLContext) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        await runner.cleanup()
        raise _cannot_listen(host, port, error) from error
    return runner


def _cannot_listen(host: str, port: int, error: OSError) -> CannotServe:
    return CannotServe(f"the operator cannot listen at {host}:{port}: {error}")


def _load(tls: ssl.SSLContext, certificates: Path) -> None:
    """Load the certificate and key if they match.

    The files are first loaded into a new context, because files that do not match would leave `tls` without a key.
    """
    for each in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), tls):
        each.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")


async def reloading(tls: ssl.SSLContext, certificates: Path, every_s: float = RELOAD_S) -> AsyncIterator[None]:
    """Reload the certificate and key regularly while the application runs.

    After a failure, as in the middle of a renewal, the previous certificate and key stay until the next try.
    """

    async def reload() -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                _load(tls, certificates)
            except (OSError, ValueError) as error:  # ssl.SSLError is a subclass of OSError.
                log.error(RELOAD_FAILED, certificates, error)

    task = asyncio.create_task(reload())
    yield
    task.cancel()
