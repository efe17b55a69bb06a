"""The messages of a topic: as events while they are found, as JSON, or as a file."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from threading import Thread
from typing import Any, Final, TypeVar

from aiohttp import web

from barnabas_console.app.views import known_topic
from barnabas_console.app.web import HEADERS, Refusal, Site, Visit, plain, query_of, reply, wants_json
from barnabas_console.html import messages as pages
from barnabas_console.kafka.tail import EXPORT, FOLLOW, SEARCH, Limits, Search, Tray, partition_of, run_search
from barnabas_console.model.inputs import InvalidInput
from barnabas_console.model.messages import (
    COLUMNS,
    Masking,
    Message,
    MessageQuery,
    Progress,
    Shown,
    csv_line,
    exported,
    message_query,
    shown,
)
from barnabas_console.registry.client import Missing, Registry
from barnabas_console.registry.values import Values
from barnabas_kafka.connection import connected_consumer
from barnabas_registry.schemas import Schema

READERS_MAX: Final = 32
READERS_EACH: Final = 4
"""The searches and tails at one time, of all visitors and of one session; each has a thread and connections."""
TRAY_ROWS_MAX: Final = 500
TRAY_BYTES_MAX: Final = 4 << 20
ROWS_A_TURN: Final = 50
TURN_S: Final = 0.25
"""The pause between two events of one tail, so that a browser gets at most 200 rows a second."""
SILENCE_S: Final = 5.0
"""The seconds after which a tail without news sends a comment, to find out whether the visitor is still there."""
WRITE_S: Final = 30.0
"""The seconds that a visitor has to read what was sent; then the search ends."""
CONNECT_S: Final = 5.0
SCHEMA_S: Final = 30.0
"""The seconds that a search waits for a schema, with others that ask the registry before it."""
Row = TypeVar("Row")


class Streams:
    """The handlers of messages. `steady_s` is a clock that never goes back."""

    def __init__(self, site: Site, steady_s: Callable[[], float]) -> None:
        self._site = site
        self._steady_s = steady_s
        self._masking = Masking(site.options.masked)
        self._readers: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below the prefix."""
        path = f"{self._site.options.prefix}/topics/{{topic}}/messages"
        return [web.get(path, self.messages), web.get(f"{path}/stream", self.stream)]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Return the page of the messages, the messages as JSON, or a file of them."""
        given = query_of(request)
        query = message_query(given)
        visit = await self._site.visit(request)
        topic = known_topic(visit)
        self._check(visit, topic, query)
        if query.download:
            return await self._export(visit, topic, query)
        if wants_json(request):
            return await self._found(visit, topic, query)
        return reply(request, {}, pages.messages(visit.frame, topic, given))

    def _check(self, visit: Visit, topic: str, query: MessageQuery) -> None:
        count = len(visit.snapshot.partitions_of(topic))
        if query.partition is not None and query.partition >= count:
            raise InvalidInput("partition", str(query.partition), f"a whole number from 0 to {count - 1}")
        if query.lookup and query.partition not in (None, partition_of(query.lookup.encode(), count)):
            place = partition_of(query.lookup.encode(), count)
            raise InvalidInput("partition", str(query.partition), f"{place} or nothing, because the key belongs there")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send messages as events, until the search ends or the visitor goes."""
        query = message_query(query_of(request))
        visit = await self._site.visit(request)
        topic = known_topic(visit)
        self._check(visit, topic, query)
        tray = Tray[Shown](TRAY_ROWS_MAX, TRAY_BYTES_MAX, waits=not query.follow)
        with self._reading(visit, topic, query, tray, FOLLOW if query.follow else SEARCH, partial(_shown, query=query)):
            answer = _streamed("text/event-stream")
            await answer.prepare(request)
            with suppress(ConnectionResetError, TimeoutError):  # The visitor has gone, or reads no more.
                async for event in self._events(visit, query, tray):
                    async with asyncio.timeout(WRITE_S):
                        await answer.write(event)
        return answer

    async def _events(self, visit: Visit, query: MessageQuery, tray: Tray[Shown]) -> AsyncIterator[bytes]:
        """Yield rows and progress; a comment during silence. A tail of a session that has ended ends, too."""
        sent, sent_s = "", self._steady_s()
        while not tray.is_over:
            rows = tray.take(ROWS_A_TURN)
            if rows:
                yield pages.event("rows", pages.rows(rows))
            text = pages.progress(tray.progress, follows=query.follow)
            if text != sent or rows:
                yield pages.event("progress", text)
                sent, sent_s = text, self._steady_s()
            elif self._steady_s() - sent_s > SILENCE_S:
                yield b":\n\n"
                sent_s = self._steady_s()
            if not self._is_welcome(visit):
                yield pages.refused("the session has ended; log in again")
                return
            await asyncio.sleep(TURN_S if query.follow or not rows else 0)
        yield pages.event("progress", pages.progress(tray.progress, follows=query.follow))
        yield pages.event("end", "")

    async def _found(self, visit: Visit, topic: str, query: MessageQuery) -> web.Response:
        """Return the messages as JSON after the search, which has the same limits as on the page."""
        if query.follow:
            raise InvalidInput("follow", "1", "0 with JSON; messages come as events at the address with /stream")
        found: list[Shown] = []
        tray = Tray[Shown](TRAY_ROWS_MAX, TRAY_BYTES_MAX, waits=True)
        with self._reading(visit, topic, query, tray, SEARCH, partial(_shown, query=query)):
            while not tray.is_over:
                found += tray.take(TRAY_ROWS_MAX)
                await asyncio.sleep(0.01)
        if tray.progress.is_failed:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the brokers refuse: {tray.progress.end}")
        data = {"topic": topic, "messages": found, "progress": tray.progress}
        return web.json_response(plain(data), headers={"Vary": "Accept"})

    async def _export(self, visit: Visit, topic: str, query: MessageQuery) -> web.StreamResponse:
        """Send a file. If the search fails at its beginning, answer with the reason; later, break the connection."""
        tray = Tray[bytes](TRAY_ROWS_MAX, TRAY_BYTES_MAX, waits=True)
        kind = "application/jsonl" if query.download == "jsonl" else "text/csv"
        with self._reading(visit, topic, query, tray, EXPORT, partial(_exported, query=query)):
            lines = tray.take(ROWS_A_TURN)
            while not lines and not tray.is_over:
                await asyncio.sleep(0.01)
                lines = tray.take(ROWS_A_TURN)
            if tray.progress.is_failed:
                raise Refusal(HTTPStatus.BAD_GATEWAY, f"the brokers refuse: {tray.progress.end}")
            answer = _streamed(kind, {"Content-Disposition": f'attachment; filename="{topic}.{query.download}"'})
            await answer.prepare(visit.request)
            with suppress(ConnectionResetError, TimeoutError):  # The visitor has gone, or reads no more.
                await answer.write(csv_line(COLUMNS) if query.download == "csv" else b"")
                while lines or not tray.is_over:
                    async with asyncio.timeout(WRITE_S):
                        await answer.write(b"".join(lines))
                    if not self._is_welcome(visit):
                        _break(visit.request)
                        break
                    lines = tray.take(ROWS_A_TURN)
                    await asyncio.sleep(0 if lines else 0.01)
        _break_if_failed(visit.request, tray.progress)
        return answer

    def _is_welcome(self, visit: Visit) -> bool:
        """True if the session has not ended, and the brokers accept its login; its collector goes on then."""
        visit.collector.use()
        return self._site.is_open(visit.session) and not visit.collector.is_refused

    @contextmanager
    def _reading(
        self,
        visit: Visit,
        topic: str,
        query: MessageQuery,
        tray: Tray[Row],
        limits: Limits,
        render: Callable[[Message], tuple[Row, int]],
    ) -> Iterator[None]:
        """Run a search in a thread while the block runs. Raises Refusal if too many others run."""
        session_id = visit.session.session_id
        for count, most, whose in (
            (self._readers[session_id], READERS_MAX if self._site.is_shared(visit.session) else READERS_EACH, "your"),
            (self._readers.total(), READERS_MAX, "all visitors'"),
        ):
            if count >= most:
                text = f"{count} of {whose} searches and tails run, which is the limit; end one, or try again later"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text)
        partitions = [each.partition for each in visit.snapshot.partitions_of(topic)]
        decode = self._decoding(query)
        search = Search(topic, partitions, query, decode, self._masking, limits, render, self._steady_s)
        connect = partial(self._consumer, visit, query)
        thread = Thread(target=run_search, args=(connect, search, tray), name=f"reader of {topic}", daemon=True)
        self._readers[session_id] += 1
        thread.start()
        try:
            yield
        finally:
            tray.close()
            asyncio.get_running_loop().create_task(self._ended(thread, session_id))

    def _decoding(self, query: MessageQuery) -> Callable[[Message], Message]:
        """Return the function by which the thread of a search decodes messages; hex shows the bytes as they are."""
        hides = bool(self._masking.fields)
        registry = self._site.registry
        if registry is None or (query.format == "hex" and not hides):
            return lambda message: message
        ask = partial(_schema, registry, asyncio.get_running_loop())
        return Values(ask, hides=hides).read

    async def _ended(self, thread: Thread, session_id: str) -> None:
        """Count a reader until its thread has ended, because a broker that hangs may hold it for seconds."""
        while thread.is_alive():
            await asyncio.sleep(0.05)
        self._readers[session_id] -= 1
        self._readers += Counter()  # Drop those at 0.

    def _consumer(self, visit: Visit, query: MessageQuery) -> Any:
        credentials = visit.session.principal.credentials
        return connected_consumer(
            self._site.options.bootstrap, CONNECT_S, "barnabas-console", credentials, query.isolation
        )


def _schema(registry: Registry, loop: asyncio.AbstractEventLoop, schema_id: int) -> Schema | Missing:
    """Return a schema to the thread of a search; the loop asks the registry."""
    try:
        return asyncio.run_coroutine_threadsafe(registry.schema(schema_id), loop).result(SCHEMA_S)
    except TimeoutError:
        return Missing("the registry does not answer")


def _break_if_failed(request: web.Request, progress: Progress) -> None:
    if progress.is_failed:
        _break(request)


def _break(request: web.Request) -> None:
    """Break the connection, because a file that ends in order would look whole."""
    if request.transport is not None:
        request.transport.abort()


def _shown(message: Message, query: MessageQuery) -> tuple[Shown, int]:
    row = shown(message, query.format)
    texts = (row.key, row.value, *(text for pair in row.headers for text in pair))
    return row, sum(len(each or "") for each in texts)


def _exported(message: Message, query: MessageQuery) -> tuple[bytes, int]:
    line = exported(message, query)
    return line, len(line)


def _streamed(kind: str, headers: dict[str, str] | None = None) -> web.StreamResponse:
    answer = web.StreamResponse(headers={**HEADERS, **(headers or {}), "X-Accel-Buffering": "no"})
    answer.content_type = kind
    answer.charset = "utf-8"
    return answer
