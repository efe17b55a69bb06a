"""A watch that has ended without a word is noticed by what it did not tell, and what went is told to the workers."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from weakref import WeakSet

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube import api
from barnabas_operator.observed.audit import Audit, Versions, missed_between, turned_back
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.object_key import Key
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import HurriedClock

LOOKS = 5
WAIT_S = 10.0
PAGE = 10
TOPICS = 100
Asked = Callable[[KubeMemory, Inventory, int], None]

CASES: dict[str, tuple[Versions, Versions, Versions, list[str]]] = {
    "all is told": ({"a": 1}, {"a": 1}, {"a": 1}, []),
    "a change that is told": ({"a": 1}, {"a": 2}, {"a": 2}, []),
    "a change that is underway": ({"a": 1}, {"a": 2}, {"a": 1}, []),
    "a change that was there before and is not told": ({"a": 2}, {"a": 2}, {"a": 1}, ["a"]),
    "one that was there before and is not told at all": ({"a": 1}, {"a": 1}, {}, ["a"]),
    "one that came just now": ({}, {"a": 1}, {}, []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_so_before_and_is_not_known_yet_was_missed(name: str) -> None:
    before, now, known, missed = CASES[name]
    assert missed_between(before, now, known) == missed


def test_a_store_that_was_put_back_is_noticed() -> None:
    """Else all that is changed from then on would count as older than what is known."""
    assert turned_back({"a": 5, "b": 1, "gone": 7}, {"a": 4, "b": 2, "new": 1}) == ["a"]


def topic(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "air", "uid": name, "resourceVersion": "1"}
    return {"kind": "Topic", "metadata": meta, "spec": {}}


def audited(inventory: Inventory, on_listing: Asked) -> list[str]:
    """What is told as gone while some audits list; `on_listing` hears the number of each listing as it begins."""
    told: list[str] = []

    def tell_gone(body: Mapping[str, Any]) -> None:
        told.append(body["metadata"]["name"])
        inventory.keep(body, is_gone=True)

    async def scenario() -> None:
        numbers, done = count(1), asyncio.Event()
        async with no_server() as connection:
            api = KubeMemory(connection)

            def asked(_method: str, path: str, _body: Mapping[str, Any]) -> None:
                if path.endswith("topics"):
                    number = next(numbers)
                    on_listing(api, inventory, number)
                    if number == LOOKS:
                        done.set()

            api.refuse = asked
            running = asyncio.create_task(Audit(inventory, api, ("air",), tell_gone, 60.0, HurriedClock()).run())
            async with asyncio.timeout(WAIT_S):
                await done.wait()
            running.cancel()

    asyncio.run(scenario())
    return told


def test_what_two_listings_lack_and_the_watch_has_not_told_of_is_gone() -> None:
    inventory = Inventory()
    inventory.keep(topic("went"), is_gone=False)
    assert audited(inventory, lambda _api, _inventory, _number: None) == ["went"]


def test_what_is_created_while_an_audit_lists_is_not_gone() -> None:
    """The watch tells of it before the listing ends, which shows what was there when it began."""
    created: list[dict[str, Any]] = []

    def create(api: KubeMemory, inventory: Inventory, number: int) -> None:
        for each in created:
            api.objects[f"/apis/barnabas.dev/v1alpha1/namespaces/air/topics/{each['metadata']['name']}"] = each
        created.append(topic(f"t{number}"))
        inventory.keep(created[-1], is_gone=False)

    inventory = Inventory()
    assert audited(inventory, create) == []
    assert Key("air", "t1") in inventory.of_kind("Topic")


def test_what_one_listing_lacks_may_have_been_told_meanwhile() -> None:
    def lacks_once(api: KubeMemory, _inventory: Inventory, number: int) -> None:
        path = "/apis/barnabas.dev/v1alpha1/namespaces/air/topics/stays"
        if number % 2:
            api.objects.pop(path, None)
        else:
            api.objects[path] = topic("stays")

    inventory = Inventory()
    inventory.keep(topic("stays"), is_gone=False)
    assert audited(inventory, lacks_once) == []


class Listed(dict[str, Any]):
    """A resource in an answer; unlike a plain dict it can be followed until nobody has it any more."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Pages(KubeMemory):
    """TOPICS Topics, in answers as large as they are asked for; `alive_max` of them were kept at once."""

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.listed = asyncio.Event()
        self.alive_max = 0
        self._alive: WeakSet[Listed] = WeakSet()

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if not path.endswith("/topics"):
            return await super().request(method, path, **given)
        query = given["query"]
        first = int(query.get("continue") or 0)
        after = min(first + int(query.get("limit", TOPICS)), TOPICS)
        items = [Listed(topic(f"t{number}")) for number in range(first, after)]
        self._alive.update(items)
        self.alive_max = max(self.alive_max, len(self._alive))
        if after == TOPICS:
            self.listed.set()
        return {"items": items, "metadata": {"continue": str(after) if after < TOPICS else ""}}


def test_an_audit_lists_in_pages_and_keeps_no_more_than_two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, each minute, would be more than the operator's memory."""
    monkeypatch.setattr(api, "PAGE", PAGE)
    inventory = Inventory()
    for number in range(TOPICS):
        inventory.keep(topic(f"t{number}"), is_gone=False)

    async def scenario() -> int:
        async with no_server() as connection:
            pages = Pages(connection)
            audit = Audit(inventory, pages, ("air",), lambda body: pytest.fail(str(body)), 60.0, HurriedClock())
            running = asyncio.create_task(audit.run())
            for _ in range(LOOKS):
                pages.listed.clear()
                async with asyncio.timeout(WAIT_S):
                    await pages.listed.wait()
            running.cancel()
            assert audit.why_dead is None
            return pages.alive_max

    assert asyncio.run(scenario()) <= 2 * PAGE
