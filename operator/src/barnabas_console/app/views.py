"""The pages that only show: clusters, login, cluster, topics, groups, users."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from barnabas_console.app.options import ProcessOptions
from barnabas_console.app.web import (
    COOKIE,
    OFFERED,
    SESSION,
    STATIC,
    Refusal,
    Site,
    Visit,
    form_of,
    home_frame,
    once,
    or_reason,
    query_of,
    reply,
    with_cookie,
)
from barnabas_console.html import pages
from barnabas_console.html import users as user_pages
from barnabas_console.html.frame import ROWS_MAX, link
from barnabas_console.kafka.details import Users, group_detail, topic_detail, users_of
from barnabas_console.kafka.transactions import transactions_of
from barnabas_console.model.details import Detail, UserRow
from barnabas_console.model.inputs import Fields, Part, list_query, part_of
from barnabas_console.model.rights import checked_host, rights_part, rules_of
from barnabas_console.model.snapshot import is_hidden
from barnabas_core.acls import AclSubject

LOGIN_FIELDS: Final = ("username", "password", "mechanism", "back")
PASSWORD_LENGTH_MAX: Final = 8_000
WITH_CONFIGS: Final = ("consumer", "share")
"""The types of groups that have configs."""
TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
STATIC_FILES: Final = ("console.css", "console.js", "htmx.min.js", "sse.min.js", "icon.svg")


class Home:
    """The handlers that ask no cluster: the probe, the files of pages, and the list of clusters."""

    def __init__(self, process: ProcessOptions) -> None:
        self._process = process
        self._static = {name: (STATIC / name).read_bytes() for name in STATIC_FILES}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes; none for a list if there is only one cluster."""
        prefix = self._process.prefix
        gets = [web.get(f"{prefix}/healthz", self.healthz), web.get(f"{prefix}/static/{{name}}", self.static)]
        if not self._process.has_list:
            return gets
        return [*gets, web.get(f"{prefix}/", self.clusters), *([web.get(prefix, self.clusters)] if prefix else [])]

    async def clusters(self, request: web.Request) -> web.Response:
        """Return the list of clusters, which tells only their names."""
        paths = {each.name: each.prefix for each in self._process.clusters}
        return reply(request, {"clusters": paths}, pages.clusters(home_frame(self._process.prefix, request), paths))

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer the probe: the process answers, whatever the brokers do."""
        return web.Response(text="ok\n")

    async def static(self, request: web.Request) -> web.Response:
        """Return a file of the pages."""
        name = request.match_info["name"]
        if name not in self._static:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no file {name}")
        body, kind = self._static[name], TYPES[f".{name.rpartition('.')[2]}"]
        return web.Response(body=body, content_type=kind, headers={"Cache-Control": "public, max-age=3600"})


class Views:
    """The handlers of the pages of a cluster that only show. `now_ms` returns the time since the epoch."""

    def __init__(self, site: Site, now_ms: Callable[[], int]) -> None:
        self._site = site
        self._now_ms = now_ms

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below the prefix."""
        prefix = self._site.options.prefix
        handlers = (
            ("/", self.cluster),
            ("/login", self.login_form),
            ("/topics", self.topics),
            ("/topics/{topic}", self.topic),
            ("/transactions", self.transactions),
            ("/groups", self.groups),
            ("/groups/{group}", self.group),
            ("/users", self.users),
            ("/users/{user}", self.user),
        )
        gets = [web.get(f"{prefix}{path}", handler) for path, handler in handlers]
        posts = [web.post(f"{prefix}/login", self.login), web.post(f"{prefix}/logout", self.logout)]
        return [*gets, *posts, *([web.get(prefix, self.cluster)] if prefix else [])]

    async def login_form(self, request: web.Request) -> web.Response:
        """Return the page of the login."""
        back = Fields(query_of(request), ("back",)).text("back")
        return self._login_page(request, _local(back))

    def _login_page(self, request: web.Request, back: str, problem: Refusal | None = None) -> web.Response:
        first = self._site.options.mechanism or OFFERED[0]
        page = pages.login(self._site.frame(request), OFFERED, first, back, str(problem or ""))
        status = HTTPStatus.OK if problem is None else problem.status
        return reply(request, {"mechanisms": OFFERED, "error": str(problem or "")}, page, status)

    async def login(self, request: web.Request) -> web.Response:
        """Begin a session, and show the page that the visitor wanted."""
        site = self._site
        if site.options.own is not None:
            raise Refusal(HTTPStatus.BAD_REQUEST, "this console looks with its own account, so nobody logs in")
        fields = Fields(once(await request.post()), LOGIN_FIELDS, PASSWORD_LENGTH_MAX)
        mechanism = fields.one_of("mechanism", OFFERED, site.options.mechanism or OFFERED[0])
        back = _local(fields.text("back"))
        try:
            session = await site.log_in(mechanism, fields.text("username"), fields.text("password"))
        except Refusal as refusal:
            return self._login_page(request, back, refusal)
        answer = with_cookie(site, request, session)
        answer.headers["Location"] = f"{site.options.prefix}{back}"
        return answer

    async def logout(self, request: web.Request) -> web.Response:
        """End the session."""
        await form_of(request)
        self._site.sessions.close(request[SESSION].session_id)
        answer = web.Response(
            status=HTTPStatus.SEE_OTHER, headers={"Location": link(self._site.frame(request), "/login")}
        )
        answer.del_cookie(COOKIE, path=self._site.options.prefix or "/")
        return answer

    async def cluster(self, request: web.Request) -> web.Response:
        """Return the page of the cluster."""
        visit = await self._site.visit(request)
        seen, roll = visit.snapshot.seen, await or_reason(self._site.roll(visit))
        data = {
            "roll": roll,
            "cluster_id": seen.cluster_id,
            "brokers": seen.brokers,
            "topics": len(visit.snapshot.topics),
            "away": visit.snapshot.away,
            "leaderless": visit.snapshot.leaderless,
            "moving": visit.snapshot.moving,
        }
        return reply(request, {**_about(visit), **data}, pages.cluster(visit.frame, visit.snapshot, roll))

    async def topics(self, request: web.Request) -> web.Response:
        """Return the list of topics."""
        query = list_query(query_of(request), pages.TOPIC_SORTS, tuple(pages.LARGEST_FIRST))
        visit = await self._site.visit(request)
        rows = [each for each in visit.snapshot.topics if query.all or not is_hidden(each.name)]
        part = part_of(rows, query, lambda each: each.name)
        return reply(request, {**_about(visit), **part._asdict()}, pages.topics(visit.frame, query, part))

    async def groups(self, request: web.Request) -> web.Response:
        """Return the list of groups."""
        query = list_query(query_of(request), pages.GROUP_SORTS, tuple(pages.LARGEST_FIRST))
        visit = await self._site.visit(request)
        part = part_of(visit.snapshot.groups, query, lambda each: each.group_id)
        return reply(request, {**_about(visit), **part._asdict()}, pages.groups(visit.frame, query, part))

    async def topic(self, request: web.Request) -> web.Response:
        """Return the page of a topic."""
        visit = await self._site.visit(request)
        name = known_topic(visit)
        rows = [visit.snapshot.partition(each) for each in visit.snapshot.partitions_of(name)]
        detail = await self._detail(lambda: topic_detail(visit.collector.client(), name))
        manifest = await or_reason(self._site.manifest(visit, "topic", name))
        data = {"name": name, "partitions": rows, "groups": visit.snapshot.readers.get(name, {}), **detail._asdict()}
        page = pages.topic(visit.frame, name, rows, visit.snapshot, detail, manifest)
        return reply(request, {**_about(visit), **data, "manifest": manifest}, page)

    async def group(self, request: web.Request) -> web.Response:
        """Return the page of a group."""
        visit = await self._site.visit(request)
        name = known_group(visit)
        row = next(each for each in visit.snapshot.groups if each.group_id == name)
        seen, lags = visit.snapshot.seen.groups[name], visit.snapshot.lags[name]
        manifest, detail = await or_reason(self._site.manifest(visit, "group", name)), None
        if seen.group_type in WITH_CONFIGS:
            detail = await self._detail(lambda: group_detail(visit.collector.client(), name))
        data = {**row._asdict(), "members": seen.members, "lags": lags, "manifest": manifest, "detail": detail}
        return reply(request, {**_about(visit), **data}, pages.group(visit.frame, row, seen, lags, detail, manifest))

    async def _detail(self, work: Callable[[], Detail]) -> Detail:
        """Return what a page adds to the snapshot, or why it is not known: the page is shown in any case."""
        found = await or_reason(self._site.ask(work))
        return Detail(failure=found) if isinstance(found, str) else found

    async def transactions(self, request: web.Request) -> web.Response:
        """Return the open transactions in the partitions that they hold back, with those that hang first."""
        visit = await self._site.visit(request)
        held = visit.snapshot.held_back()
        asked = dict(sorted(held.items(), key=lambda each: -each[1])[:ROWS_MAX])
        seen, now_ms = visit.snapshot.seen, self._now_ms()
        rows = await self._site.ask(lambda: transactions_of(visit.collector.client(), seen, asked, now_ms))
        page = pages.transactions(visit.frame, rows, len(held) - len(asked))
        return reply(request, {**_about(visit), "transactions": rows, "left_out": len(held) - len(asked)}, page)

    async def users(self, request: web.Request) -> web.Response:
        """Return the list of users."""
        query = list_query(query_of(request), ("name", "rules"), ("rules",))
        visit = await self._site.visit(request)
        found = await self._site.ask(lambda: users_of(visit.collector.client()))
        part, has_acls = part_of(found.rows, query, lambda each: each.name), found.acls is not None
        page = user_pages.users(visit.frame, query, part, has_acls=has_acls)
        return reply(request, {**_about(visit), "has_acls": has_acls, **part._asdict()}, page)

    async def user(self, request: web.Request) -> web.Response:
        """Return what a user may do, and by which rule; brokers do not know all users, such as those by certificate."""
        given, name = query_of(request), request.match_info["user"]
        asker = AclSubject(f"User:{name}", checked_host(given.pop("host", "")))
        query = list_query(given, user_pages.RIGHTS_SORTS)
        visit = await self._site.visit(request)

        def asked() -> tuple[Users, Part]:
            found = users_of(visit.collector.client())
            return found, rights_part(found.acls or (), asker, visit.snapshot, query)

        found, part = await self._site.ask(asked)
        row = next((each for each in found.rows if each.name == name), UserRow(name, (), 0, ""))
        rules = None if found.acls is None else rules_of(found.acls, asker)
        data = {**row._asdict(), "has_acls": rules is not None, "acls": rules or (), "host": asker.host}
        page = user_pages.user(visit.frame, row, rules, query, part, asker.host)
        return reply(request, {**_about(visit), **data, **(part._asdict() if rules is not None else {})}, page)


def _about(visit: Visit) -> dict[str, object]:
    return {"age_s": visit.frame.age_s, "failures": visit.frame.failures}


def _local(back: str) -> str:
    """Return a path of this console; the first page in place of an address that could lead to another site."""
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable() else "/"


def known_topic(visit: Visit) -> str:
    """Return the topic in the address. Raises Refusal if the visitor sees no such topic."""
    name = visit.request.match_info["topic"]
    if not visit.snapshot.partitions_of(name):
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no topic {name}, or {visit.frame.who} may not describe it")
    return name


def known_group(visit: Visit) -> str:
    """Return the group in the address. Raises Refusal if the visitor sees no such group."""
    name = visit.request.match_info["group"]
    if name not in visit.snapshot.seen.groups:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no group {name}, or {visit.frame.who} may not describe it")
    return name
