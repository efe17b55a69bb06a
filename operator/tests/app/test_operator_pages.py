"""The operator's pages over TLS, and with a token."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from barnabas_kube.access import Access
from barnabas_operator.app.operator import WEB_NAMES, CannotServe, Operator, read_variables, serve_pages
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from barnabas_web.visitors import Protection
from harness.certificates import Authority
from harness.deadline import PATIENCE_S
from harness.server_process import free_port

NOBODY = Access("http://127.0.0.1:1", None, lambda: None)


async def answers(protection: Protection, ask: Callable[[int], object]) -> object:
    """Return the result of `ask` while an operator that has not started its work serves its pages."""
    port = free_port()
    server = await serve_pages(Operator(OperatorSettings("broker:dev", ()), NOBODY), f"127.0.0.1:{port}", protection)
    try:
        return await asyncio.to_thread(ask, port)
    finally:
        await server.stop()


def status(url: str, trust: ssl.SSLContext | None = None, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE_S, context=trust) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


async def test_pages_are_served_without_tls_by_default() -> None:
    def ask(port: int) -> list[int]:
        return [status(f"http://127.0.0.1:{port}{path}") for path in ("/metrics", "/healthz", "/readyz", "/other")]

    assert await answers(Protection(), ask) == [200, 200, 503, 404]


async def test_metrics_require_the_configured_token_and_probes_do_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    identity = authority.issue("operator")
    (tmp_path / "tls.crt").write_text(identity.certificate)
    (tmp_path / "tls.key").write_text(identity.key)
    (tmp_path / "token").write_text("geheim")
    given = {"HTTP_CERTIFICATES": str(tmp_path), "HTTP_TOKEN_FILE": str(tmp_path / "token")}
    trust = ssl.create_default_context(cafile=authority.file)

    def ask(port: int) -> list[int]:
        url = f"https://127.0.0.1:{port}"
        without = [status(f"{url}{path}", trust) for path in ("/metrics", "/healthz", "/readyz", "/other")]
        return [*without, status(f"{url}/metrics", trust, Authorization="Bearer geheim")]

    assert await answers(Protection(read_variables(given).web_files(), WEB_NAMES), ask) == [401, 200, 503, 401, 200]


async def test_the_error_names_an_address_that_cannot_be_bound() -> None:
    with pytest.raises(CannotServe, match=r"the operator cannot listen at 192\.0\.2\.1:1: "):
        await serve_pages(Operator(OperatorSettings("broker:dev", ()), NOBODY), "192.0.2.1:1", Protection())
