"""The dry run of a Cluster's objects before it is stored, with an API server that gives one answer."""

import asyncio
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.admission import ANSWER_S_MAX, DryRun
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.manual_loop_clock import ManualLoopClock
from harness.worker_world import resource

CLUSTER = Cluster(metadata=ObjectMeta(name="flights", namespace="air", uid="u"))
INVALID = 'StatefulSet.apps "flights-broker" is invalid: spec.template.spec.tolerations[0].key: Invalid value: "a b"'
OF_JOB = 'Job.batch "a-driver" is invalid: spec.template.spec.tolerations[0].key: Invalid value: "a b"'
STRICT = 'StatefulSet in version "v1" is none: strict decoding error: unknown field "spec.template.spec.affinity.x"'


class OneAnswer(KubeApi):
    """An API server without claims that gives `answer` to every other request and keeps it in `asked`."""

    def __init__(self, connection: ApiClient, answer: Exception | None) -> None:
        super().__init__(connection)
        self._answer = answer
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if path.endswith("/persistentvolumeclaims"):
            return {"items": []}
        self.asked.append((method, path, given["query"]))
        if self._answer is not None:
            raise self._answer
        return {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        (KubeRefused(422, "Invalid", INVALID), 'spec.template.pod.spec.tolerations[0].key: Invalid value: "a b"'),
        (KubeRefused(400, "BadRequest", STRICT), 'unknown field "spec.template.pod.spec.affinity.x"'),
        (KubeRefused(409, "AlreadyExists", "it is there"), None),
        (KubeRefused(403, "Forbidden", "no such right"), None),
        (KubeUnreachable("not now"), None),
    ],
)
async def test_the_dry_run_objects_only_if_the_api_server_finds_the_object_invalid(
    answer: Exception | None, said: str | None, connection: ApiClient
) -> None:
    api = OneAnswer(connection, answer)
    assert await DryRun(api, "image", ManualLoopClock())(CLUSTER) == said
    assert api.asked == [
        (
            "POST",
            "/apis/apps/v1/namespaces/air/statefulsets",
            {"dryRun": "All", "fieldValidation": "Strict"},
        )
    ]


class NoAnswer(OneAnswer):
    """An API server that never answers on an open connection."""

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        return await asyncio.Future()


async def test_the_dry_run_has_no_objection_if_the_api_server_does_not_answer_in_time(connection: ApiClient) -> None:
    clock = ManualLoopClock()
    asking = asyncio.create_task(DryRun(NoAnswer(connection, None), "image", clock)(CLUSTER))
    while clock.waits_s != [ANSWER_S_MAX]:
        await asyncio.sleep(0)
    assert not asking.done()
    clock.pass_time(ANSWER_S_MAX)
    assert await asking is None


def of_run(template: dict[str, Any]) -> MaintenanceJob:
    spec: dict[str, Any] = {
        "job": "archive",
        "options": {"topic": "flights", "archive": "s3a://a/b"},
        "template": template,
    }
    return resource_of(MaintenanceJob, resource("MaintenanceJob", "a", **spec))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        (KubeRefused(422, "Invalid", OF_JOB), 'spec.template.pod.spec.tolerations[0].key: Invalid value: "a b"'),
        (KubeRefused(403, "Forbidden", "no such right"), None),
        (KubeUnreachable("not now"), None),
    ],
)
async def test_the_template_of_a_run_is_tried_with_its_job(
    answer: Exception | None, said: str | None, connection: ApiClient
) -> None:
    api = OneAnswer(connection, answer)
    dry_run = DryRun(api, "image", ManualLoopClock())
    assert await dry_run(of_run({"pod": {"spec": {"tolerations": [{"key": "a b"}]}}})) == said
    assert await dry_run(of_run({})) is None
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    assert api.asked == [("POST", "/apis/batch/v1/namespaces/air/jobs", query)]


class RefusesJobs(OneAnswer):
    """An API server that gives `answer` only to new Jobs and accepts everything else."""

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if path.endswith("/jobs") and method == "POST":
            return await super().request(method, path, **given)
        return {"items": []}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        (
            KubeRefused(422, "Invalid", OF_JOB),
            'nightly: spec.template.pod.spec.tolerations[0].key: Invalid value: "a b"',
        ),
        (KubeRefused(403, "Forbidden", "no such right"), None),
        (KubeUnreachable("not now"), None),
    ],
)
async def test_the_template_of_a_schedule_is_tried_with_the_job_of_its_runs(
    answer: Exception | None, said: str | None, connection: ApiClient
) -> None:
    """Without this check, each of its runs would be refused later, when the schedule starts it."""
    run = {"job": "archive", "options": {"topic": "flights", "archive": "s3a://a/b"}}
    template = {"pod": {"spec": {"tolerations": [{"key": "a b"}]}}}
    entries = [
        {"name": "plain", "schedule": "@daily", **run},
        {"name": "nightly", "schedule": "@daily", **run, "template": template},
    ]
    api = RefusesJobs(connection, answer)
    cluster = resource_of(Cluster, resource("Cluster", "main", maintenance=entries))
    expected = said and f"spec.maintenance {said}"
    assert await DryRun(api, "image", ManualLoopClock())(cluster) == expected
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    assert api.asked == [("POST", "/apis/batch/v1/namespaces/air/jobs", query)]
