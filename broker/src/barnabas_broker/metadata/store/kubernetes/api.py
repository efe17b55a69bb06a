"""The requests of the metadata store to the API server.

StoreUnavailable means that the API server did not answer in time, was overloaded, denied permission, or failed. If
there was no answer, a write may have happened nevertheless.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, StoreUnavailable
from barnabas_kube.access import Access
from barnabas_kube.client import SILENCE_S, Answer, ApiClient, NoAnswer, StreamRefused, parse_status

REQUEST_S: Final = 3.0
"""The timeout of a request in seconds, so short that a lease renewal can be repeated before the lease expires."""
BULK_S: Final = 20.0
"""The timeout in seconds of listings, whose answers may have tens of MB."""
RETRY_AFTER_S: Final = 1.0
ANSWER_S: Final = 0.5
"""A failed request is repeated only if at least this many seconds of its timeout are left."""
AGENT: Final = "barnabas-broker"


class ApiRequests:
    """The requests of one store to the API server."""

    def __init__(self, access: Access) -> None:
        self._client = ApiClient(access, AGENT)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> Answer:
        """Return the answer to a request; repeat the request if the server is overloaded. Raises StoreUnavailable."""
        time_s = asyncio.get_running_loop().time
        end_s = time_s() + timeout_s
        try:
            while True:
                left_s = end_s - time_s()
                answer = await self._client.request(method, path, query, body, content_type, timeout_s=left_s)
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS or end_s - time_s() < RETRY_AFTER_S + ANSWER_S:
                    break
                await asyncio.sleep(RETRY_AFTER_S)
        except NoAnswer as error:
            raise StoreUnavailable(str(error)) from error
        _check(f"{method} {path}", answer)
        return answer

    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float = SILENCE_S
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a streamed body as they arrive, until the server ends the body.

        Raises HistoryCompacted if the API server no longer keeps the watched revision, and StoreUnavailable for other
        errors.
        """
        try:
            async with aclosing(self._client.stream(path, query, silence_s)) as stream:
                async for lines in stream:
                    yield lines
        except StreamRefused as refusal:
            kind = HistoryCompacted if refusal.status == HTTPStatus.GONE else StoreUnavailable
            raise kind(str(refusal)) from refusal
        except NoAnswer as error:
            raise StoreUnavailable(str(error)) from error

    async def close(self) -> None:
        """End all requests that are under way."""
        await self._client.close()


def _check(what: str, answer: Answer) -> None:
    """Raise StoreUnavailable if the server is overloaded, denied permission, or failed."""
    refused = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if answer.status in refused or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise StoreUnavailable(f"{what}: {answer.status} {parse_status(answer.body).message}")
