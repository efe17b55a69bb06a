"""Answers the API server's admission reviews, whose bodies anybody may send."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from barnabas_operator.resources.json_types import Json
from barnabas_web.http_server import Page, Received, text_page
from barnabas_web.visitors import Turns

log = logging.getLogger(__name__)

REVIEW_BYTES_MAX: Final = 5 << 20
"""The size limit of a review: a new object of 3 MiB, which the API server accepts, and one of 1.5 MiB in etcd."""
VALUES_MAX: Final = 100_000
"""The maximum number of JSON values in a review, because each takes up to 100 bytes of memory."""
REVIEWS_MAX: Final = 32
"""The reviews of one address at a time; each may cause 25 dry runs at the API server."""

Answer = Callable[[Json], Awaitable[dict[str, Any]]]


class Starting(Exception):
    """The operator cannot answer reviews yet."""


class _Object(msgspec.Struct):
    kind: str
    metadata: dict[str, Any]


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    object: _Object | None = None
    old_object: _Object | None = None


class _Review(msgspec.Struct, rename="camel"):
    """The fields that a review must have; the rest is the API server's."""

    api_version: str
    request: _Request


class Reviews:
    """The reviews at one port. Addresses take turns, so that bodies of a stranger delay the API server by one."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._turns = Turns()
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def page(self, received: Received) -> Page:
        """Return the answer to a review; it is an error for a body that is no review, or has too many values."""
        if sum(map(received.body.count, (b",", b"[", b"{"))) > VALUES_MAX:
            return text_page(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a review may have {VALUES_MAX} values\n")
        async with self._places.setdefault(received.address, asyncio.Semaphore(REVIEWS_MAX)):
            try:
                said = await self._said(received)
            except (msgspec.MsgspecError, RecursionError) as error:
                return text_page(HTTPStatus.BAD_REQUEST, f"the body is no admission review: {error}\n")
            except Starting:
                return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "starting\n")
            except Exception:
                log.exception("a bug in the webhook, or a review that no API server sends")
                return text_page(HTTPStatus.INTERNAL_SERVER_ERROR, "the review failed; the operator's log has more\n")
        return Page(HTTPStatus.OK, "application/json", msgspec.json.encode(said))

    async def _said(self, received: Received) -> dict[str, Any]:
        async with self._turns.turn(received.address):
            asked = msgspec.json.decode(received.body)
            msgspec.convert(asked, _Review)
            answer = asyncio.ensure_future(self._answer(asked))
            # The task judges the objects before it waits for anything, and the turn lasts so long.
            await asyncio.sleep(0)
        return await answer
