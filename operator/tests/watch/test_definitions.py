"""Kinds whose definitions come while the operator runs are watched, which kopf itself may miss."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import kopf

from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused
from barnabas_operator.resources.object_meta import GROUP, VERSION
from barnabas_operator.watch.definitions import Definitions
from harness.manual_loop_clock import HurriedClock

VERBS = ["create", "get", "list", "watch"]


class ServingApi(KubeApi):
    """Answers with one list of kinds after the other, then with the last one. None: there is no definition."""

    def __init__(self, *answers: list[dict[str, Any]] | None) -> None:
        self.answers = list(answers)

    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        assert (method, path) == ("GET", f"/apis/{GROUP}/{VERSION}")
        answer = self.answers[0]
        if len(self.answers) > 1:
            del self.answers[0]
        if answer is None:
            raise KubeRefused(NOT_FOUND, "NotFound", "there is no such group")
        return {"resources": answer}


def served(name: str, kind: str, verbs: list[str] = VERBS) -> dict[str, Any]:
    """A kind in the API server's list."""
    return {"name": name, "kind": kind, "namespaced": True, "verbs": verbs}


async def watched(api: ServingApi) -> Mapping[str, kopf.Resource]:
    """What kopf is told to watch once the API has given all its answers."""
    found = Definitions(HurriedClock())
    found.insights.ready_resources.set()
    running = asyncio.create_task(found.run(api))
    async with asyncio.timeout(10), found.insights.revised:
        await found.insights.revised.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return {each.plural: each for each in found.insights.watched_resources}


def test_a_kind_that_is_served_late_is_watched() -> None:
    late = ServingApi(None, [], [served("clusters", "Cluster")])
    assert asyncio.run(watched(late))["clusters"].namespaced


def test_only_our_kinds_are_watched_and_none_whose_definition_is_being_deleted() -> None:
    api = ServingApi(
        [
            served("topics", "Topic"),
            served("topics/status", "Topic", ["get", "patch"]),
            served("strangers", "Stranger"),
            served("clusters", "Cluster", ["delete", "get", "list", "watch"]),
        ]
    )
    assert asyncio.run(watched(api)).keys() == {"topics"}
