"""The MaintenanceJobs of a namespace, which the console reads from the Kubernetes API with an account of its own.

Environment variables, volumes and Spark's configuration of a run are not shown, because they may hold secrets.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from barnabas_console.app.web import Refusal, Site, query_of, reply
from barnabas_console.html import pages
from barnabas_console.model.details import RunRow
from barnabas_console.model.inputs import list_query, part_of
from barnabas_kube.client import ApiClient, NoAnswer, parse_status
from barnabas_operator.resources.kind import API_VERSION
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB

REQUEST_S: Final = 10.0
PAGE: Final = 500
RUNS_MAX: Final = 5_000
"""The most runs of a list; a notice says that there are more."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    creation_timestamp: str = ""


class _Spec(msgspec.Struct):
    job: str
    cluster: str | None = None
    options: dict[str, str] = {}


class _Count(msgspec.Struct):
    done: int
    total: int | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    cluster: str | None = None
    start_time: str = ""
    completion_time: str = ""
    duration: str = ""
    attempts: int = 0
    activity: str = ""
    progress: str = ""
    records: _Count | None = None
    records_behind: int | None = None
    ledger: str = ""
    result: dict[str, Any] = {}
    conditions: list[_Condition] = []


class _Run(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMeta(msgspec.Struct):
    token: str = msgspec.field(default="", name="continue")


class _Runs(msgspec.Struct):
    items: list[_Run]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class Runs:
    """The handlers of the pages of one namespace."""

    def __init__(self, site: Site, api: ApiClient, namespace: str) -> None:
        self._site = site
        self._api = api
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/{MAINTENANCE_JOB.plural}"

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below the prefix."""
        path = f"{self._site.options.prefix}/maintenance"
        return [web.get(path, self.runs), web.get(f"{path}/{{run}}", self.run)]

    async def runs(self, request: web.Request) -> web.Response:
        """Return the list of runs, the latest first."""
        query = list_query(query_of(request), pages.RUN_SORTS, ("created", "records"))
        visit = await self._site.visit(request)
        found, is_cut = await self._all()
        part = part_of([_row(each) for each in found], query, lambda each: each.name)
        page = pages.runs(visit.frame, query, part, RUNS_MAX if is_cut else None)
        return reply(request, {**part._asdict(), "is_cut": is_cut}, page)

    async def run(self, request: web.Request) -> web.Response:
        """Return one run with its options and its result."""
        visit = await self._site.visit(request)
        name = request.match_info["run"]
        found = await self._ask(f"{self._path}/{quote(name, safe='')}", {}, _Run)
        row, status = _row(found), found.status
        data = {**row._asdict(), "options": found.spec.options, "result": status.result, "ledger": status.ledger}
        return reply(request, data, pages.run(visit.frame, row, found.spec.options, status.result, status.ledger))

    async def _all(self) -> tuple[list[_Run], bool]:
        """Return the runs, and True if there are more than RUNS_MAX."""
        runs: list[_Run] = []
        token = ""
        while len(runs) < RUNS_MAX:
            query = {"limit": str(PAGE), **({"continue": token} if token else {})}
            answer = await self._ask(self._path, query, _Runs)
            runs += answer.items
            token = answer.metadata.token
            if not token:
                return runs, False
        return runs, True

    async def _ask(self, path: str, query: Mapping[str, str], kind: type[Any]) -> Any:
        """Return an answer of the API server. Raises Refusal with its reason."""
        try:
            answer = await self._api.request("GET", path, query, timeout_s=REQUEST_S)
        except NoAnswer as error:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the Kubernetes API does not answer: {error}") from error
        if answer.status == HTTPStatus.NOT_FOUND:
            raise Refusal(HTTPStatus.NOT_FOUND, f"the Kubernetes API: {parse_status(answer.body).message}")
        if answer.status != HTTPStatus.OK:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the Kubernetes API refuses: {parse_status(answer.body).message}")
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the answer of the Kubernetes API is invalid: {error}") from error


def _row(run: _Run) -> RunRow:
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
