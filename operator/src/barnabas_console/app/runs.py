"""The pages of what Kubernetes has: MaintenanceJobs, and the form by which visitors give their token."""

from http import HTTPStatus
from typing import Final

from aiohttp import web

from barnabas_console.app.web import SESSION, Site, form_of, query_of, reply
from barnabas_console.html import pages
from barnabas_console.html.frame import link
from barnabas_console.kubernetes.client import OBJECTS_MAX, Kubernetes, Run, checked_token
from barnabas_console.model.details import RunRow
from barnabas_console.model.inputs import Fields, list_query, part_of

TOKEN_LENGTH_MAX: Final = 8_000
"""The maximum number of characters in a token for the Kubernetes API."""


class Runs:
    """The handlers of the pages."""

    def __init__(self, site: Site, kubernetes: Kubernetes) -> None:
        self._site = site
        self._kubernetes = kubernetes

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below the prefix; the form only if visitors need a token."""
        prefix = self._site.options.prefix
        shown = [
            web.get(f"{prefix}/maintenance", self.runs),
            web.get(f"{prefix}/maintenance/{{run}}", self.run),
        ]
        path = f"{prefix}/kubernetes"
        forms = [web.get(path, self.token_form), web.post(path, self.take_token)]
        return [*shown, *(forms if self._kubernetes.is_visitors else [])]

    async def token_form(self, request: web.Request) -> web.Response:
        """Return the form for a token, which says whether the session has one."""
        has_token = request[SESSION].kubernetes_token != ""
        page = pages.token(self._site.frame(request), has_token=has_token)
        return reply(request, {"has_token": has_token, "csrf": request[SESSION].csrf}, page)

    async def take_token(self, request: web.Request) -> web.Response:
        """Keep the token in the session, or forget it if it is empty."""
        fields = Fields(await form_of(request), ("token",), TOKEN_LENGTH_MAX)
        self._site.sessions.keep_token(request[SESSION], checked_token(fields.text("token").strip()))
        location = link(self._site.frame(request), "/kubernetes")
        return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": location})

    async def runs(self, request: web.Request) -> web.Response:
        """Return the list of runs, the latest first."""
        query = list_query(query_of(request), pages.RUN_SORTS, ("created", "records"))
        visit = await self._site.visit(request)
        found, is_cut = await self._kubernetes.runs(visit.kubernetes_token)
        part = part_of([_row(each) for each in found], query, lambda each: each.name)
        page = pages.runs(visit.frame, query, part, OBJECTS_MAX if is_cut else None)
        return reply(request, {**part._asdict(), "is_cut": is_cut}, page)

    async def run(self, request: web.Request) -> web.Response:
        """Return one run with its options and its result."""
        visit = await self._site.visit(request)
        found = await self._kubernetes.run(request.match_info["run"], visit.kubernetes_token)
        row, status = _row(found), found.status
        data = {**row._asdict(), "options": found.spec.options, "result": status.result, "ledger": status.ledger}
        return reply(request, data, pages.run(visit.frame, row, found.spec.options, status.result, status.ledger))


def _row(run: Run) -> RunRow:
    status = run.status
    return RunRow(
        name=run.metadata.name,
        job=run.spec.job,
        cluster=status.cluster or run.spec.cluster or "",
        phase=status.phase,
        created=run.metadata.creation_timestamp,
        started=status.start_time,
        ended=status.completion_time,
        duration=status.duration,
        attempts=status.attempts,
        progress=status.progress or status.activity,
        records=0 if status.records is None else status.records.done,
        message=" ".join(dict.fromkeys(each.message for each in status.conditions if each.message)),
    )
