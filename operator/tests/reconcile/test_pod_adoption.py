"""Rounds over pods of a StatefulSet that is gone: the one that was made anew adopts them, and they run on."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_operator.resources.json_types import JsonObject
from harness.worker_world import Play, World, of_broker, resource

LONG_AGO = "2026-01-01T00:00:00Z"
PODS = "/api/v1/namespaces/air/pods/one-broker-0"


def pod_of(uid: str, **meta: object) -> JsonObject:
    pod = of_broker(0)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "one-broker", "uid": uid, "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "uid": "p", "ownerReferences": [owner], **meta}}


async def with_pod(here: World, pod: JsonObject) -> None:
    """Beside a StatefulSet that has been there for long."""
    here.api.put(resource("Cluster", "one", brokers={"replicas": 1}))
    await here.round()
    made = here.api.found("StatefulSet", "one-broker") or {}
    here.api.put({**made, "metadata": {**made["metadata"], "uid": "new", "creationTimestamp": LONG_AGO}})
    here.kubernetes_saw("new")
    here.api.put(pod)
    here.api.writes.clear()


def owners(here: World) -> list[str]:
    found = here.api.found("Pod", "one-broker-0") or {}
    return [each["uid"] for each in found["metadata"]["ownerReferences"]]


def test_a_pod_whose_stateful_set_is_gone_loses_its_owner_once_and_that_is_told(play: Play) -> None:
    async def scenario(here: World) -> None:
        await with_pod(here, pod_of("old"))
        assert await here.round()
        assert await here.round()
        assert owners(here) == []
        assert here.api.writes.count(f"PATCH {PODS}") == 1
        assert [reason for reason, _ in here.api.events()].count("BrokerAdopted") == 1
        assert here.api.found("Pod", "one-broker-0"), "it runs on"

    play(scenario)


@pytest.mark.parametrize("pod", [pod_of("new"), pod_of("old", deletionTimestamp=LONG_AGO, finalizers=["a"])])
def test_no_pod_is_touched_that_has_its_stateful_set_or_ends(play: Play, pod: JsonObject) -> None:
    async def scenario(here: World) -> None:
        await with_pod(here, pod)
        await here.round()
        assert owners(here) == [pod["metadata"]["ownerReferences"][0]["uid"]]
        assert f"PATCH {PODS}" not in here.api.writes

    play(scenario)


def test_a_pod_that_has_changed_since_it_was_seen_is_looked_at_again(play: Play) -> None:
    async def scenario(here: World) -> None:
        await with_pod(here, pod_of("old"))

        def changed(method: str, path: str, _: Mapping[str, Any]) -> None:
            if (method, path) == ("PATCH", PODS):
                here.api.refuse = lambda *_: None
                here.api.put(pod_of("old", annotations={"changed": "now"}))

        here.api.refuse = changed
        assert await here.round()
        assert owners(here) == ["old"]
        assert await here.round()
        assert owners(here) == []

    play(scenario)


def test_a_pod_that_was_seen_beside_a_stateful_set_that_is_gone_by_now_keeps_its_owner(play: Play) -> None:
    """It may be of the one that was made meanwhile."""

    async def scenario(here: World) -> None:
        await with_pod(here, pod_of("newer"))
        reads = 0

        def made_anew(method: str, path: str, _: Mapping[str, Any]) -> None:
            nonlocal reads
            reads += (method, path.rpartition("/")[2]) == ("GET", "one-broker") and "/statefulsets/" in path
            if reads == 2:
                made = here.api.found("StatefulSet", "one-broker") or {}
                here.api.put({**made, "metadata": {**made["metadata"], "uid": "newer"}})

        here.api.refuse = made_anew
        await here.round()
        assert reads >= 2, "it was read again"
        assert owners(here) == ["newer"]

    play(scenario)
