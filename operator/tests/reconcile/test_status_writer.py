"""Statuses are written once, with the length that the API server accepts, and independently."""

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_kube.client import ApiClient
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.topics.topic_plan import topic_status
from barnabas_operator.reconcile.worker_environment import FINALIZER, StatusWriter
from barnabas_operator.resources.kind import MESSAGE_LENGTH_MAX
from barnabas_operator.resources.schema_check import resource_of
from barnabas_operator.resources.topic import Topic
from harness.kube_memory import KubeMemory

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
BROKEN = Refusal("KafkaError", "no")


@pytest.fixture
def api(connection: ApiClient) -> KubeMemory:
    return KubeMemory(connection)


@pytest.fixture
def writer(api: KubeMemory) -> StatusWriter:
    return StatusWriter(api, SystemClock())


def a_topic(api: KubeMemory, name: str = "flights") -> dict[str, Any]:
    return api.put({"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": {}})


def told(body: dict[str, Any], problem: Refusal, now: str) -> tuple[Topic, dict[str, Any]]:
    topic = resource_of(Topic, body)
    return replace(topic, status=topic_status(topic, None, problem, now)), body


def condition(api: KubeMemory, name: str = "flights") -> dict[str, Any]:
    found = api.found("Topic", name)
    assert found is not None
    return dict(found["status"]["conditions"][0])


async def test_a_status_is_not_written_twice_before_the_watch_reports_it(api: KubeMemory, writer: StatusWriter) -> None:
    stale = a_topic(api)
    await writer.write([told(stale, BROKEN, EARLY)])
    written = list(api.writes)
    await writer.write([told(stale, BROKEN, LATE)])
    assert api.writes == written
    assert api.events() == [("KafkaError", "no")]
    assert condition(api)["lastTransitionTime"] == EARLY
    await writer.write([told(stale, Refusal("KafkaError", "never"), LATE)])
    assert condition(api)["message"] == "never"


async def test_a_status_that_others_have_changed_is_written_again(api: KubeMemory, writer: StatusWriter) -> None:
    body = a_topic(api)
    await writer.write([told(body, BROKEN, EARLY)])
    await writer.write([told(api.put(body), BROKEN, LATE)])
    assert condition(api)["lastTransitionTime"] == LATE


async def test_a_long_message_is_cut_to_the_limit_of_a_condition(api: KubeMemory, writer: StatusWriter) -> None:
    body = a_topic(api)
    await writer.write([told(body, Refusal("InvalidSpec", "x" * 2 * MESSAGE_LENGTH_MAX), EARLY)])
    assert condition(api)["message"] == "x" * (MESSAGE_LENGTH_MAX - 3) + "..."


async def test_a_refused_status_holds_up_no_other(api: KubeMemory, writer: StatusWriter) -> None:
    bodies = [a_topic(api, name) for name in ("bad", "good")]

    def refuse(_method: str, path: str, _body: object) -> Exception | None:
        return KubeRefused(422, "Invalid", "too long") if "/bad/" in path else None

    api.refuse = refuse
    await writer.write([told(body, BROKEN, EARLY) for body in bodies])
    assert condition(api, "good")["message"] == "no"


async def test_an_object_that_was_deleted_meanwhile_gets_no_finalizer(api: KubeMemory, writer: StatusWriter) -> None:
    body = a_topic(api)
    await api.delete("Topic", "air", "flights")
    has_it = await writer.set_finalizer(body, wanted=True)
    assert not has_it
    is_without = await writer.set_finalizer(
        {**body, "metadata": {**body["metadata"], "finalizers": [FINALIZER]}}, wanted=False
    )
    assert is_without
