"""A proxy of a real API server that can be closed for a while: it refuses every request and ends those under way."""

import asyncio
import json
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import ClientSession, TCPConnector, web

from local_kubernetes.control_plane import ControlPlane

HOST: Final = "127.0.0.1"
HOP_BY_HOP: Final = {"transfer-encoding", "content-length", "connection"}
# aiohttp has decompressed the body of a request when it is read here, and names the host itself.
NOT_ASKED: Final = HOP_BY_HOP | {"host", "content-encoding"}


class RefusingProxy:
    """A proxy. `refused` counts requests by path while it refuses; `asked` has the queries of all requests, by path."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._refusing = 0
        self._running: set[asyncio.Transport] = set()
        self._session: ClientSession | None = None
        self.refused: Counter[str] = Counter()
        self.asked: defaultdict[str, list[Mapping[str, str]]] = defaultdict(list)

    def refuse(self, status: int) -> None:
        """Refuse everything from now on."""
        self._refusing = status
        self.refused.clear()
        for each in tuple(self._running):
            each.abort()

    def open(self) -> None:
        """Pass everything from now on."""
        self._refusing = 0

    @asynccontextmanager
    async def running(self, kubeconfig: Path) -> AsyncIterator[None]:
        """Run the proxy, and write the kubeconfig with which the administrator connects through it."""
        trust = ssl.create_default_context(cafile=str(self._plane.authority.certificate))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0)
        try:
            async with ClientSession(connector=TCPConnector(ssl=trust), auto_decompress=False) as self._session:
                await site.start()
                port = runner.addresses[0][1]
                config = json.loads(self._plane.kubeconfig.read_text())
                config["clusters"][0]["cluster"] = {"server": f"http://{HOST}:{port}"}
                kubeconfig.write_text(json.dumps(config))
                yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path].append(request.query)
        if self._refusing:
            self.refused[request.path] += 1
            return web.json_response({"kind": "Status", "message": "not now"}, status=self._refusing)
        assert self._session is not None
        assert request.transport is not None
        headers = _without(NOT_ASKED, request.headers)
        url = f"{self._plane.url}{request.raw_path}"
        transport = request.transport
        self._running.add(transport)
        try:
            async with self._session.request(
                request.method,
                url,
                headers=headers,
                skip_auto_headers={"Accept-Encoding"},
                data=await request.read() or None,
            ) as found:
                # The API server compresses what is larger than 128 KiB: a list of all CRDs, for one.
                answer = web.StreamResponse(status=found.status, headers=_without(HOP_BY_HOP, found.headers))
                await answer.prepare(request)
                async for part in found.content.iter_any():
                    await answer.write(part)
                return answer
        finally:
            self._running.discard(transport)


def _without(names: set[str], headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}
