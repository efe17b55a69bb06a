"""The pages `/metrics` and `/healthz`, served by a thread of their own."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Thread
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from barnabas_lag.app.options import Listener
from barnabas_web.http_server import HttpServer, Page, PageMaker, text_page
from barnabas_web.protection import Protection

PROBES: Final = frozenset({"/healthz"})


def make_pages(
    own: CollectorRegistry, cluster: Callable[[], bytes], why_ending: Callable[[], str | None]
) -> Mapping[str, PageMaker]:
    """Return the HTTP pages: the metrics, both the exporter's own and the lag that was last read, and the probe.

    A page is served without a request to the Kafka cluster.
    """

    async def metrics() -> Page:
        return Page(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(own) + cluster())

    async def healthz() -> Page:
        reason = why_ending()
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, f"{reason or 'ok'}\n")

    return {"/metrics": metrics, "/healthz": healthz}


class PageServer:
    """The HTTP server of the pages.

    It runs in a thread, so that slow clients do not delay the evaluation of the lag.
    """

    def __init__(self, listener: Listener, pages: Mapping[str, PageMaker], protection: Protection) -> None:
        """Listen, and start the thread. Raise OSError if the address cannot be used."""
        self._loop = asyncio.new_event_loop()
        self._server = HttpServer(pages, PROBES, protection)
        try:
            self.port = self._loop.run_until_complete(self._server.start(*listener))
        except OSError:
            self._loop.close()
            raise
        self._thread = Thread(target=self._loop.run_forever, name="pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._server.stop())
        self._loop.close()
