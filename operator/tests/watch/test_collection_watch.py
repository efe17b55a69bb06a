"""A watch of a collection reports each object, each change and each deletion, even after interruptions."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.reconcile_parts import MustEnd
from barnabas_operator.watch import CollectionWatch, watch_all
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import HurriedClock
from harness.worker_world import KEY, environment_of, resource

Body = dict[str, Any]
Listed = list[Body] | Exception
RESTORED = "the watch of Topics in air saw version 9, but now sees version 5: etcd was restored"


def topic(name: str, version: int, uid: str = "u") -> Body:
    return {
        "kind": "Topic",
        "metadata": {"name": name, "namespace": "air", "uid": uid, "resourceVersion": f"{version}"},
    }


class ScriptedApi(KubeApi):
    """An API server with a script of lists in pages, each followed by events; at the end it is silent."""

    def __init__(self, connection: ApiClient, *lives: tuple[Iterable[Listed], Iterable[Any]]) -> None:
        super().__init__(connection)
        self.lives = list(lives)
        self.asked: list[int] = []
        self.is_done = asyncio.Event()

    async def pages(self, *_place: Any, **_: Any) -> AsyncIterator[Body]:
        if not self.lives:
            self.is_done.set()
            await asyncio.Event().wait()
        for page in self.lives[0][0]:
            if isinstance(page, Exception):
                del self.lives[0]
                raise page
            newest = max((int(each["metadata"]["resourceVersion"]) for each in page), default=5)
            yield {"items": page, "metadata": {"resourceVersion": str(newest)}}

    async def changes(self, *place: Any) -> AsyncIterator[Body]:
        self.asked.append(place[-1])
        for event in self.lives.pop(0)[1]:
            if isinstance(event, Exception):
                raise event
            yield {"type": event[0], "object": event[1]}


def heard(*lives: tuple[Iterable[Listed], Iterable[Any]], failing: str = "") -> list[str]:
    """Return the names of reported Topics, with a minus if they are deleted; an error is `!` and the kind."""
    told: list[str] = []

    def hear(body: Mapping[str, Any], *, is_gone: bool) -> None:
        if body["metadata"]["name"] == failing:
            raise ValueError("a mistake of ours")
        told.append(f"{'-' if is_gone else ''}{body['metadata']['name']}")

    async def scenario() -> None:
        async with no_server() as connection:
            api = ScriptedApi(connection, *lives)
            watch = CollectionWatch(
                api, "Topic", "air", {}, hear, lambda kind: told.append(f"!{kind}"), lambda: None, HurriedClock()
            )
            running = asyncio.create_task(watch.run())
            done = asyncio.create_task(api.is_done.wait())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait((running, done), return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
            if running.done():
                await running
            running.cancel()

    asyncio.run(scenario())
    return told


def test_the_watch_reports_every_listed_object_and_every_change() -> None:
    events = [("MODIFIED", topic("a", 6)), ("ADDED", topic("c", 7)), ("DELETED", topic("b", 8))]
    assert heard(([[topic("a", 1)], [topic("b", 2)]], events)) == ["a", "b", "a", "c", "-b"]


@pytest.mark.parametrize("break_off", [[], [KubeUnreachable("cut")], [("ERROR", {"code": 410, "reason": "Expired"})]])
def test_changes_while_no_stream_ran_are_reported_and_other_objects_are_not_repeated(break_off: list[Any]) -> None:
    before = [topic("same", 1), topic("changed", 2), topic("gone", 3), topic("again", 4)]
    after = [topic("same", 1), topic("changed", 8), topic("again", 9, "other"), topic("new", 10)]
    again = heard(([before], break_off), ([after], []))[len(before) :]
    assert again == ["-gone", "-again", "changed", "again", "new"]


@pytest.mark.parametrize("error", [KubeUnreachable("away"), KubeRefused(403, "Forbidden", "not yet"), ValueError("?")])
def test_a_list_that_fails_half_way_is_not_reported(error: Exception) -> None:
    assert heard(([[topic("deleted-since", 1)], error], []), ([[topic("a", 2)]], [])) == ["a"]


def test_a_resource_version_that_goes_back_stops_the_operator() -> None:
    with pytest.raises(MustEnd, match=RESTORED):
        heard(([[topic("a", 1)]], [("BOOKMARK", topic("", 9))]), ([[topic("a", 5)]], []))


def test_an_object_that_cannot_be_processed_is_logged_and_counted_and_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert heard(([[topic("bad", 1), topic("good", 2)]], []), failing="bad") == ["!Topic", "good"]
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.getMessage() == "Topic air/bad could not be processed"


async def test_no_worker_starts_before_every_kind_of_its_namespace_is_listed(connection: ApiClient) -> None:
    """A younger Topic must not take the topic of an older one that is listed later."""
    api, inventory = KubeMemory(connection), Inventory()
    api.put(resource("Cluster", "one", pause=True))
    is_refused, allowed = asyncio.Event(), asyncio.Event()

    def refuse(_method: str, path: str, _body: Mapping[str, Any]) -> Exception | None:
        if not path.endswith("/topics") or allowed.is_set():
            return None
        is_refused.set()
        return KubeUnreachable("away")

    api.refuse = refuse
    workers = ClusterWorkers(inventory, environment_of(api), OperatorMetrics(inventory))
    clock = HurriedClock()
    running = asyncio.create_task(watch_all(api, (KEY.namespace,), workers, pytest.fail, clock))
    async with asyncio.timeout(PATIENCE_S):
        await is_refused.wait()
        while KEY not in inventory.clusters:
            await asyncio.sleep(0)
        assert api.writes == []
        allowed.set()
        while not any("/clusters/one" in each for each in api.writes):
            await asyncio.sleep(0.01)
    running.cancel()
    await workers.close()
