"""Requests to an API server that refuses, is busy, or does not respond."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from barnabas_broker.metadata.store.kubernetes import leases
from barnabas_broker.metadata.store.kubernetes.leases import ApiRequests
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, StoreUnavailable
from barnabas_kube.access import Access
from harness.deadline import PATIENCE_S

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]
BUSY = {"kind": "Status", "code": 429, "message": "too many requests, please try again later"}
GONE = {"kind": "Status", "code": 410, "message": "too old resource version"}


@asynccontextmanager
async def asking(answer: Answering, tokens: list[str] | None = None) -> AsyncIterator[ApiRequests]:
    """Yield requests to a server that responds with `answer`; each request uses the next token."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    requests = ApiRequests(Access(f"http://127.0.0.1:{port}", None, lambda: tokens.pop(0) if tokens else None))
    try:
        yield requests
    finally:
        await requests.close()
        await runner.cleanup()


async def test_a_request_to_a_busy_server_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RETRY_AFTER_S", 0.01)
    statuses = [429, 429, 200]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(BUSY, status=statuses.pop(0))

    async with asking(answer) as requests:
        assert (await requests.request("GET", "/api/v1/pods")).status == 200
    assert statuses == []


async def test_a_server_that_stays_busy_is_unavailable_with_its_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RETRY_AFTER_S", 0.01)
    monkeypatch.setattr(leases, "ANSWER_S", 0.1)

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(BUSY, status=429)

    async with asking(answer) as requests:
        with pytest.raises(StoreUnavailable, match=r"GET /api/v1/pods: 429 too many requests, please try again later"):
            await requests.request("GET", "/api/v1/pods", timeout_s=0.2)


async def test_a_busy_server_is_not_treated_as_unresponsive() -> None:
    """If no time is left for a retry, the last response counts, and streams continue."""
    answers = [web.json_response(BUSY, status=429)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            if not answers:
                await asyncio.Event().wait()
            return answers.pop()
        response = web.StreamResponse()
        await response.prepare(request)
        for line in (b"1\n", b"2\n"):
            await response.write(line)
            await heard.wait()
        return response

    heard = asyncio.Event()
    async with asking(answer) as requests, asyncio.timeout(PATIENCE_S):
        stream = requests.stream("/api/v1/pods", {"watch": "1"})
        assert await anext(stream) == [b"1"]
        with pytest.raises(StoreUnavailable, match="429 too many requests"):
            await requests.request("GET", "/api/v1/pods", timeout_s=leases.RETRY_AFTER_S + 0.2)
        heard.set()
        assert await anext(stream) == [b"2"]


async def test_a_request_without_a_response_ends_the_streams_from_the_same_server() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            await asyncio.Event().wait()
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        await asyncio.Event().wait()
        return response

    async with asking(answer) as requests, asyncio.timeout(PATIENCE_S):
        stream = requests.stream("/api/v1/pods", {"watch": "1"})
        assert await anext(stream) == [b"{}"]
        with pytest.raises(StoreUnavailable, match=r"/api/v1/pods: no answer within 0\.2 s"):
            await requests.request("GET", "/api/v1/pods", timeout_s=0.2)
        with pytest.raises(StoreUnavailable):
            await anext(stream)


async def test_a_stream_from_an_expired_revision_raises_history_compacted() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(GONE, status=410)

    async with asking(answer) as requests:
        with pytest.raises(HistoryCompacted, match="410 too old resource version"):
            await anext(requests.stream("/api/v1/pods", {"watch": "1"}))


async def test_the_next_request_uses_a_renewed_token() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["Authorization"])

    async with asking(answer, ["first", "second"]) as requests:
        told = [(await requests.request("GET", "/api/v1/pods")).body for _ in range(2)]
    assert told == [b"Bearer first", b"Bearer second"]
