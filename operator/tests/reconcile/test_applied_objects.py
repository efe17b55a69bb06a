"""The events of an object after which it is applied again: those that others caused."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.planning.brokers.pods import BrokerSet, PodsState
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ClaimsReconciler, GarbageCollector
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import JsonObject, ObjectMeta
from harness.kube_memory import KubeMemory, no_server

CLUSTER = Cluster(metadata=ObjectMeta(name="one", namespace="air", uid="u"))
OWNER = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "name": "one", "uid": "u", "controller": True}
META = {"name": "one-broker", "namespace": "air", "ownerReferences": [OWNER]}
ITEM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": META, "data": {"a": "1"}}


@asynccontextmanager
async def applied() -> AsyncIterator[tuple[KubeMemory, AppliedObjects]]:
    async with no_server() as connection:
        api = KubeMemory(connection)
        objects = AppliedObjects(api)
        assert await objects.apply(CLUSTER, ITEM)
        assert not await objects.apply(CLUSTER, ITEM)
        yield api, objects


def now(api: KubeMemory) -> JsonObject:
    found = api.found("ConfigMap", "one-broker")
    assert found is not None
    return found


def changed(found: JsonObject, **fields: object) -> JsonObject:
    version = str(int(found["metadata"]["resourceVersion"]) + 1)
    return {**found, **fields, "metadata": {**found["metadata"], "resourceVersion": version}}


async def test_events_of_the_operators_own_writes_are_ignored() -> None:
    async with applied() as (api, objects):
        assert not objects.object_event(now(api), is_gone=False)
        assert not objects.object_event(changed(now(api), status={"seen": 1}), is_gone=False), (
            "a status from a controller is ignored, too"
        )
        assert not await objects.apply(CLUSTER, ITEM)


async def test_an_object_that_others_changed_is_applied_again() -> None:
    async with applied() as (api, objects):
        assert objects.object_event(changed(now(api), data={"a": "2"}), is_gone=False)
        assert await objects.apply(CLUSTER, ITEM)


async def test_an_object_that_others_deleted_is_applied_again() -> None:
    async with applied() as (api, objects):
        assert objects.object_event(now(api), is_gone=True)
        assert await objects.apply(CLUSTER, ITEM)


async def test_the_event_of_an_object_that_the_operator_deleted_is_ignored() -> None:
    async with applied() as (api, objects):
        before, settled = now(api), PodsState(BrokerSet(1, "a-revision", {}))
        await GarbageCollector(api, objects, ClaimsReconciler(api)).remove(CLUSTER, settled, None)
        assert not api.of_kind("ConfigMap"), "no pod starts with it"
        assert not objects.object_event(before, is_gone=True)


async def test_late_events_of_older_versions_are_ignored() -> None:
    async with applied() as (api, objects):
        before = now(api)
        older = {**before, "data": {"a": "0"}, "metadata": {**before["metadata"], "resourceVersion": "0"}}
        assert not objects.object_event(older, is_gone=False)
        another = {**before, "metadata": {**before["metadata"], "uid": "of the one before"}}
        assert not objects.object_event(another, is_gone=True)


async def test_an_object_is_applied_again_after_a_write_without_a_response() -> None:
    async with applied() as (api, objects):

        def lost(method: str, path: str, body: Mapping[str, Any]) -> Exception | None:
            if method == "PATCH":
                api.put({**ITEM, "data": dict(body["data"])})
                return KubeUnreachable("timed out")
            return None

        api.refuse = lost
        with pytest.raises(KubeUnreachable):
            await objects.apply(CLUSTER, {**ITEM, "data": {"a": "2"}})
        api.refuse = lambda *_: None
        assert await objects.apply(CLUSTER, ITEM), "the former declaration is applied again"
        assert now(api)["data"] == {"a": "1"}


async def test_an_event_of_a_write_in_progress_is_not_taken_for_a_change_by_others() -> None:
    async with applied() as (api, objects):
        told: list[bool] = []

        def overtaken(method: str, path: str, body: Mapping[str, Any]) -> None:
            if method == "PATCH":
                told.append(objects.object_event(changed(now(api), data=body["data"]), is_gone=False))

        api.refuse = overtaken
        assert await objects.apply(CLUSTER, {**ITEM, "data": {"a": "2"}})
        assert told == [False]
