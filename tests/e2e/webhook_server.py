"""Runs the operator's webhook as a server of this machine, for an API server that runs beside it without pods."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from barnabas_core.conventions import WebFiles
from barnabas_operator.app.operator import Operator, webhook_server
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_web.visitors import Protection
from local_kubernetes.certificates import Identity
from local_kubernetes.control_plane import ControlPlane

Answer = Callable[[dict[str, Any]], dict[str, Any]]
HOST = "127.0.0.1"


@contextmanager
def webhook(plane: ControlPlane, answer: Answer) -> Iterator[None]:
    """Let the API server ask `answer` before it stores a Cluster or a Topic."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = json.dumps(answer(asked)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Print nothing on the terminal."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.socket = tls_of(plane).wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever).start()
        try:
            with asked_at(plane, server.server_port):
                yield
        finally:
            server.shutdown()


@asynccontextmanager
async def webhook_of(plane: ControlPlane, operator: Operator) -> AsyncIterator[None]:
    """Let the API server ask the webhook of an operator that runs in this process."""
    identity = identity_of(plane)
    files = WebFiles(str(identity.certificate), str(identity.key))
    server = webhook_server(operator, Protection(files))
    port = await server.start(HOST, 0)
    try:
        with asked_at(plane, port):
            yield
    finally:
        await server.stop()


def identity_of(plane: ControlPlane) -> Identity:
    """Return the certificate of a server of this machine that the API server trusts."""
    return plane.authority.issue("webhook", "/CN=webhook", [f"IP:{HOST}"])


def tls_of(plane: ControlPlane) -> ssl.SSLContext:
    """Return the TLS context of such a server."""
    identity = identity_of(plane)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(identity.certificate, identity.key)
    return tls


@contextmanager
def asked_at(plane: ControlPlane, port: int) -> Iterator[None]:
    """Let the API server ask at this port; it may take a moment until it does."""
    definition = json.dumps(_configuration(plane, port))
    try:
        plane.kubectl("apply", "-f-", stdin=definition)
        yield
    finally:
        plane.kubectl("delete", "-f-", stdin=definition)


def _configuration(plane: ControlPlane, port: int) -> dict[str, Any]:
    authority = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    rule = {
        "apiGroups": ["barnabas.dev"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": [f"{kind.plural}{part}" for kind in KINDS.values() for part in ("", "/scale")],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "barnabas-operator"},
        "webhooks": [
            {
                "name": "all.barnabas.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://{HOST}:{port}/validate", "caBundle": authority},
                "rules": [rule],
            }
        ],
    }
