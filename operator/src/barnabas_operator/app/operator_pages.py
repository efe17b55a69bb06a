"""The servers of the operator: `/metrics`, `/healthz` and `/readyz`, and the webhook for the API server."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from barnabas_core.web_files import WebFiles
from barnabas_operator.admission import webhook
from barnabas_operator.app.operator_parts import Operator
from barnabas_operator.app.webhook_reviews import REVIEW_BYTES_MAX, Reviews, Starting
from barnabas_operator.resources.json_types import Json
from barnabas_web.http_server import HttpServer, Page, Posts, text_page
from barnabas_web.protection import Protection
from barnabas_web.visitors import Limits

PROBES: Final = frozenset({"/healthz", "/readyz"})
METRICS_TYPE: Final = "text/plain; charset=utf-8"
WEBHOOK_PORT: Final = 9443
WEBHOOK_HOST: Final = ""
"""All addresses of the pod, of IPv4 and IPv6."""
WEBHOOK_NAMES: Final = WebFiles("tls.crt in WEBHOOK_CERTIFICATES", "tls.key in WEBHOOK_CERTIFICATES", "")
OF_WEBHOOK: Final = Limits(bytes=32 << 20, rate=200)
"""The limits of the webhook's port: 512 connections, or six of the largest reviews."""


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


async def serve_webhook(operator: Operator, certificates: Path) -> HttpServer:
    """Serve the admission webhook over TLS, with the files `tls.crt` and `tls.key` in the directory `certificates`.

    The caller must stop the returned server. Raises CannotServe if the port cannot be bound, and FileRefused if a file
    cannot be used.
    """
    files = WebFiles(str(certificates / "tls.crt"), str(certificates / "tls.key"))
    server = webhook_server(operator, Protection(files, WEBHOOK_NAMES))
    try:
        await server.start(WEBHOOK_HOST, WEBHOOK_PORT)
    except OSError as error:
        raise _cannot_listen(WEBHOOK_HOST, WEBHOOK_PORT, error) from error
    return server


def webhook_server(operator: Operator, protection: Protection) -> HttpServer:
    """Return the server that answers the API server's admission reviews at `/validate`; it does not listen yet."""

    async def answer(asked: Json) -> dict[str, Any]:
        workers, dry_run = operator.workers, operator.dry_run
        if workers is None or dry_run is None:
            raise Starting
        return await webhook.answer(asked, operator.inventory, workers.state_of, dry_run, operator.preview)

    validate = Posts(Reviews(answer).page, REVIEW_BYTES_MAX)
    return HttpServer({}, (), protection, posts={"/validate": validate}, limits=OF_WEBHOOK)


def _cannot_listen(host: str, port: int, error: OSError) -> CannotServe:
    return CannotServe(f"the operator cannot listen at {host}:{port}: {error}")
