"""The pages `/metrics` and `/healthz`, as a WSGI application on the standard library's server."""

import socket
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from barnabas_lag.app.options import Listener

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

READ_TIMEOUT_S: Final = 30.0
TEXT: Final = "text/plain; charset=utf-8"
Answer = tuple[HTTPStatus, str, list[bytes]]


class Pages:
    """The pages: the exporter's own metrics, and the metrics of the last round. A request never asks the cluster."""

    def __init__(
        self, own: CollectorRegistry, cluster: Callable[[], bytes], why_ending: Callable[[], str | None]
    ) -> None:
        self._own, self._cluster, self._why_ending = own, cluster, why_ending

    def __call__(self, environment: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request, as a WSGI application."""
        status, content_type, body = self._answer(environment["REQUEST_METHOD"], environment.get("PATH_INFO", ""))
        length = str(sum(map(len, body)))
        start_response(f"{status.value} {status.phrase}", [("Content-Type", content_type), ("Content-Length", length)])
        return body if environment["REQUEST_METHOD"] == "GET" else []

    def _answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, TEXT, [b"allowed: GET and HEAD\n"]
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, [generate_latest(self._own), self._cluster()]
        if path == "/healthz":
            reason = self._why_ending()
            return HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, TEXT, [f"{reason or 'ok'}\n".encode()]
        return HTTPStatus.NOT_FOUND, TEXT, [b"there are /metrics and /healthz\n"]


class _Handler(WSGIRequestHandler):
    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base class has this name.
        """Log no requests, because a line for each scrape would fill the log."""


class PageServer(ThreadingMixIn, WSGIServer):
    """A server with a thread for each request."""

    daemon_threads = True

    def __init__(self, listener: Listener) -> None:
        self.address_family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        super().__init__((listener.host, listener.port), _Handler)

    def server_bind(self) -> None:
        """Bind the socket without looking up the machine's full name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def page_server(listener: Listener, pages: Pages) -> PageServer:
    """Return a server that listens but does not answer yet. Raises OSError."""
    server = PageServer(listener)
    server.set_app(pages)
    return server
