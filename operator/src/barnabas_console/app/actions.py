"""Actions with `--write`: a form, a page that names cluster, object and effect, and one audit line for each change."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

from barnabas_console.app.views import known_group, known_topic
from barnabas_console.app.web import Refusal, Site, Visit, audit, form_of, query_of, reply
from barnabas_console.html import actions as pages
from barnabas_console.html.actions import Field
from barnabas_console.html.frame import path_of
from barnabas_console.kafka import changes
from barnabas_console.kafka.changes import Change, ChangeRefused, NewMessage
from barnabas_console.model.inputs import INT64_MAX, Fields, InvalidInput, whole_number
from barnabas_console.model.snapshot import Unknown
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.connection import connected_producer

CONNECT_S: Final = 5.0
VALUE_LENGTH_MAX: Final = 900_000
PARTITIONS_MAX: Final = 100_000
RESETS: Final = ("offsets", "earliest", "latest", "datetime", "shiftBy")
NULLS: Final = ("text", "null")
T = TypeVar("T")


class Action(NamedTuple):
    """An action on a topic or group: its fields with their present values, and the plan of its change."""

    kind: str
    name: str
    title: str
    fields: Callable[[Visit, str], Sequence[Field]]
    plan: Callable[[Site, Visit, str, Fields], Change]
    is_declared: bool = True
    """True if a Topic or ConsumerGroup declares what the action changes."""


class Actions:
    """The handlers of all actions."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below the prefix; none without `--write`."""
        if not self._site.options.write:
            return []
        paths = [(f"{self._site.options.prefix}/{each.kind}s/{{{each.kind}}}/{each.name}", each) for each in ACTIONS]
        gets = [web.get(path, self._handler(self.form, each)) for path, each in paths]
        return [*gets, *(web.post(path, self._handler(self.act, each)) for path, each in paths)]

    def _handler(
        self, handle: Callable[[web.Request, Action], Awaitable[web.Response]], action: Action
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        return lambda request: handle(request, action)

    async def form(self, request: web.Request, action: Action) -> web.Response:
        """Return the form of an action with the present values."""
        Fields(query_of(request), ())
        visit, name = await self._object(request, action)
        await self._check_declared(visit, action, name)
        fields = action.fields(visit, name)
        page = pages.form_page(visit.frame, f"{action.title}: {name}", _path(action, name), fields)
        return reply(request, {"csrf": visit.session.csrf, "fields": fields}, page)

    async def act(self, request: web.Request, action: Action) -> web.Response:
        """Show the effect of an action; make the change if the visitor has confirmed it."""
        given = await form_of(request)
        is_confirmed = given.pop("confirmed", "") == "1"
        visit, name = await self._object(request, action)
        await self._check_declared(visit, action, name)
        known = [each.name for each in action.fields(visit, name)]
        change = await self._ask(partial(action.plan, self._site, visit, name, Fields(given, known, VALUE_LENGTH_MAX)))
        data, title = {"effect": change.effect, "confirmed": is_confirmed}, f"{action.title}: {name}"
        if not is_confirmed:
            page = pages.confirm(visit.frame, f"{title}?", _path(action, name), change.effect, given, action.title)
            return reply(request, data, page)
        await self._make(change, visit, action, name)
        visit.collector.refresh()
        return reply(request, data, pages.done(visit.frame, title, path_of(f"{action.kind}s", name), change.effect))

    async def _make(self, change: Change, visit: Visit, action: Action, name: str) -> None:
        """Make a change with one audit line, also if it fails: a part of it may have been made. Raises Refusal."""
        result = "unknown"
        try:
            await self._ask(change.make)
            result = "done"
        except Refusal as refusal:
            result = str(refusal)
            raise
        finally:
            audit.info(
                "action=%s cluster=%r object=%r user=%r effect=%r result=%r",
                f"{action.kind}-{action.name}",
                visit.frame.cluster,
                name,
                visit.frame.who,
                " ".join(change.effect),
                result,
            )

    async def _check_declared(self, visit: Visit, action: Action, name: str) -> None:
        """Raise Refusal if a resource declares what the action changes, because the operator would set it again.

        Raises KubernetesRefused if that is not known.
        """
        found = await self._site.manifest(visit, action.kind, name) if action.is_declared else None
        if found is not None:
            text = f"the {found.kind} {found.name} declares it; change its manifest, which the page of {name} shows"
            raise Refusal(HTTPStatus.CONFLICT, text)

    async def _ask(self, work: Callable[[], T]) -> T:
        try:
            return await self._site.ask(work)
        except ChangeRefused as error:
            raise Refusal(HTTPStatus.CONFLICT, str(error)) from error

    async def _object(self, request: web.Request, action: Action) -> tuple[Visit, str]:
        visit = await self._site.visit(request)
        return visit, known_topic(visit) if action.kind == "topic" else known_group(visit)


def _path(action: Action, name: str) -> str:
    return path_of(f"{action.kind}s", name, action.name)


def _client(visit: Visit) -> Any:
    return visit.collector.client()


def _partition_fields(visit: Visit, topic: str) -> Sequence[Field]:
    present = len(visit.snapshot.partitions_of(topic))
    return [Field("count", "Partitions", str(present), f"more than {present}")]


def _more_partitions(_site: Site, visit: Visit, topic: str, fields: Fields) -> Change:
    count = fields.number("count", 1, PARTITIONS_MAX) or 0
    return changes.more_partitions(_client(visit), topic, count, len(visit.snapshot.partitions_of(topic)))


def _config_fields(_visit: Visit, _topic: str) -> Sequence[Field]:
    return [
        Field("name", "Config", "", "such as retention.ms"),
        Field("value", "Value", ""),
        Field("default", "", "0", choices=("0", "1"), title_of=("set the value", "back to the brokers' value")),
    ]


def _another_config(_site: Site, visit: Visit, topic: str, fields: Fields) -> Change:
    name = fields.needed("name", "the name of a config of topics")
    return changes.another_config(_client(visit), topic, name, fields.text("value"), default=fields.flag("default"))


def _offset_lines(visit: Visit, topic: str) -> str:
    rows = [visit.snapshot.partition(each) for each in visit.snapshot.partitions_of(topic)]
    return "\n".join(f"{each.partition} {each.start}" for each in rows if not isinstance(each.start, Unknown))


def _record_fields(visit: Visit, topic: str) -> Sequence[Field]:
    hint = "partition and offset in each line; records before the offset are deleted"
    return [Field("before", "Delete before", _offset_lines(visit, topic), hint, is_long=True)]


def _fewer_records(_site: Site, visit: Visit, topic: str, fields: Fields) -> Change:
    starts, before = {}, {}
    for words in _lines(fields, "before", 2):
        where = TopicPartition(topic, whole_number("before", words[0], 0, PARTITIONS_MAX))
        if where not in visit.snapshot.seen.partitions:
            raise InvalidInput("before", words[0], f"partitions of {topic}")
        row = visit.snapshot.partition(where)
        if isinstance(row.start, Unknown) or isinstance(row.end, Unknown):
            raise ChangeRefused(f"{where}: {row.start}")
        before[where] = whole_number("before", words[1], row.start, row.end)
        starts[where] = row.start
    return changes.fewer_records(_client(visit), before, starts)


def _reset_fields(visit: Visit, group_id: str) -> Sequence[Field]:
    rows = [each for each in visit.snapshot.lags[group_id] if not isinstance(each.committed, Unknown)]
    present = "\n".join(f"{each.topic} {each.partition} {each.committed}" for each in rows)
    return [
        Field("to", "Continue at", RESETS[0], choices=RESETS),
        Field("value", "Time or shift", "", "2026-11-29T06:00:00Z with datetime, -10 with shiftBy"),
        Field("topics", "Topics", "", "all with commits; else their names, separated by spaces"),
        Field("offsets", "Offsets", present, "topic, partition and offset in each line", is_long=True),
    ]


def _other_offsets(_site: Site, visit: Visit, group_id: str, fields: Fields) -> Change:
    kind = fields.one_of("to", RESETS, RESETS[0])
    topics = fields.text("topics").split()
    now = datetime.fromtimestamp(time.time(), UTC)
    return changes.other_offsets(_client(visit), group_id, _target(kind, fields), topics, now)


def _target(kind: str, fields: Fields) -> Mapping[str, object]:
    if kind in ("earliest", "latest"):
        return {kind: {}}
    if kind == "datetime":
        return {kind: fields.needed("value", "a time such as 2026-11-29T06:00:00Z")}
    if kind == "shiftBy":
        return {kind: whole_number("value", fields.text("value"), -INT64_MAX, INT64_MAX)}
    offsets = [
        {
            "topic": topic,
            "partition": whole_number("offsets", partition, 0, PARTITIONS_MAX),
            "offset": whole_number("offsets", offset, 0, INT64_MAX),
        }
        for topic, partition, offset in _lines(fields, "offsets", 3)
    ]
    return {"offsets": offsets}


def _lines(fields: Fields, name: str, words: int) -> list[list[str]]:
    found = [line.split() for line in fields.text(name).splitlines() if line.strip()]
    for each in found:
        if len(each) != words:
            raise InvalidInput(name, " ".join(each), f"{words} words in each line")
    if not found:
        raise InvalidInput(name, "", f"lines of {words} words")
    return found


def _message_fields(_visit: Visit, _topic: str) -> Sequence[Field]:
    return [
        Field("partition", "Partition", "", "empty: that of the key"),
        Field("key", "Key", ""),
        Field("key_is", "The key is", "text", choices=NULLS),
        Field("value", "Value", "", is_long=True),
        Field("value_is", "The value is", "text", choices=NULLS),
        Field("headers", "Headers", "", "name=value in each line", is_long=True),
    ]


def _one_message(site: Site, visit: Visit, topic: str, fields: Fields) -> Change:
    most = len(visit.snapshot.partitions_of(topic)) - 1
    message = NewMessage(
        topic=topic,
        partition=fields.number("partition", 0, most),
        key=_bytes(fields, "key"),
        value=_bytes(fields, "value"),
        headers=[_header(line) for line in fields.text("headers").splitlines() if line.strip()],
    )
    credentials = visit.session.principal.credentials
    connect = partial(connected_producer, site.options.bootstrap, CONNECT_S, "barnabas-console", credentials)
    return changes.one_message(connect, message)


def _bytes(fields: Fields, name: str) -> bytes | None:
    return None if fields.one_of(f"{name}_is", NULLS, NULLS[0]) == "null" else fields.text(name).encode()


def _header(line: str) -> tuple[str, bytes]:
    name, equals, value = line.partition("=")
    if not equals:
        raise InvalidInput("headers", line, "name=value")
    return name, value.encode()


ACTIONS: Final = (
    Action("topic", "partitions", "Add partitions", _partition_fields, _more_partitions),
    Action("topic", "config", "Set a config", _config_fields, _another_config),
    Action("topic", "delete-records", "Delete records", _record_fields, _fewer_records, is_declared=False),
    Action("topic", "produce", "Produce a message", _message_fields, _one_message, is_declared=False),
    Action("group", "reset", "Reset offsets", _reset_fields, _other_offsets),
)
