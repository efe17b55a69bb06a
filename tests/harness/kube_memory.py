"""An API server in one dict: objects by their path. Tests choose which requests it refuses."""

from collections.abc import AsyncIterator, Callable, Mapping
from itertools import count
from typing import Any

import pytest

from barnabas_kube.access import Access
from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import APPLY, CONFLICT, NOT_FOUND, KubeApi, KubeRefused, path_of
from barnabas_operator.resources.kind import JsonObject

Refuse = Callable[[str, str, Mapping[str, Any]], Exception | None]
"""A function of method, path and body that returns an error; None lets the request pass."""


def no_server() -> ApiClient:
    """Return a client for code that never asks the API server."""
    return ApiClient(Access("http://no-server.invalid", None, lambda: None), "tests")


@pytest.fixture
async def connection() -> AsyncIterator[ApiClient]:
    """A client for code that never asks the API server, which is closed at the end."""
    async with no_server() as made:
        yield made


def _nothing(_method: str, _path: str, _body: Mapping[str, Any]) -> None:
    return None


class KubeMemory(KubeApi):
    """An API server in memory.

    `writes` lists the requests that were no reads: method, path, and `?` with the query if there is one.
    """

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.objects: dict[str, JsonObject] = {}
        self._applied: dict[str, Mapping[str, Any]] = {}
        self.writes: list[str] = []
        self.refuse: Refuse = _nothing
        self._versions = count(1)

    def put(self, item: JsonObject) -> JsonObject:
        """Store an object, as another client would."""
        meta = {"uid": item["metadata"]["name"], "generation": 1, "namespace": "air", **item["metadata"]}
        kept = {**item, "metadata": meta}
        return self._keep(path_of(item["kind"], meta["namespace"], meta["name"]), kept)

    def found(self, kind: str, name: str, namespace: str = "air") -> JsonObject | None:
        """Return the object as it is now."""
        return self.objects.get(path_of(kind, namespace, name))

    def of_kind(self, kind: str, namespace: str = "air") -> list[JsonObject]:
        """Return all objects of a kind."""
        return [each for path, each in self.objects.items() if path.startswith(f"{path_of(kind, namespace)}/")]

    def by_name(self, kind: str) -> dict[str, JsonObject]:
        """Return all objects of a kind by name."""
        return {each["metadata"]["name"]: each for each in self.of_kind(kind)}

    def events(self) -> list[tuple[str, str]]:
        """Return reason and message of each Event."""
        found = (each for path, each in self.objects.items() if "/events/" in path)
        return [(each["reason"], each["message"]) for each in found]

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        """Answer a request from memory."""
        given = body or {}
        if method != "GET":
            self.writes.append(f"{method} {path}" + ("?dryRun" if "dryRun" in (query or {}) else ""))
        refusal = self.refuse(method, path, given)
        if refusal is not None:
            raise refusal
        if "dryRun" in (query or {}):
            return dict(given)
        place = path.removesuffix("/status").removesuffix("/scale")
        match method:
            case "GET":
                return self._read(path)
            case "POST" if path.endswith("/eviction"):
                self._delete(path.removesuffix("/eviction"), given["deleteOptions"])
                return {}
            case "POST":
                return self._create(path, given)
            case "PATCH" if content_type == APPLY:
                there = _without(self.objects.get(place, {"metadata": {}}), self._applied.get(place, {}), given)
                self.objects[place] = there
                self._applied[place] = given
                return self._keep(place, _merged(there, given))
            case "PATCH":
                return self._patch(place, given)
        self._delete(path, given)
        return {}

    def _create(self, path: str, item: Mapping[str, Any]) -> JsonObject:
        where = f"{path}/{item['metadata'].get('name') or next(self._versions)}"
        if where in self.objects:
            raise KubeRefused(CONFLICT, "AlreadyExists", where)
        return self._keep(where, dict(item))

    def _read(self, path: str) -> JsonObject:
        if path in self.objects:
            return self.objects[path]
        *_, last = path.split("/")
        if not last.endswith("s") or "-" in last:
            raise KubeRefused(NOT_FOUND, "NotFound", path)
        items = [each for where, each in self.objects.items() if where.rpartition("/")[0] == path]
        return {"items": items, "metadata": {"resourceVersion": str(next(self._versions))}}

    async def changes(self, *_place: object) -> AsyncIterator[JsonObject]:
        """Return a stream that ends at once, so that a follower lists again."""
        nothing: tuple[JsonObject, ...] = ()
        for each in nothing:
            yield each

    def _patch(self, path: str, change: Mapping[str, Any]) -> JsonObject:
        there = self.objects.get(path)
        if there is None:
            raise KubeRefused(NOT_FOUND, "NotFound", path)
        for field in ("resourceVersion", "uid"):
            if change.get("metadata", {}).get(field) not in (None, there["metadata"][field]):
                raise KubeRefused(CONFLICT, "Conflict", path)
        return self._keep(path, _merged(there, change))

    def _keep(self, path: str, item: JsonObject) -> JsonObject:
        before = self.objects.get(path, {}).get("metadata", {})
        meta = {
            "uid": path,
            "generation": 1,
            **before,
            **item["metadata"],
            "resourceVersion": str(next(self._versions)),
        }
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            self.objects.pop(path, None)
        else:
            self.objects[path] = {**item, "metadata": meta}
        return {**item, "metadata": meta}

    def _delete(self, path: str, options: Mapping[str, Any]) -> None:
        there = self.objects.get(path)
        for field, wanted in options.get("preconditions", {}).items():
            if there is not None and there["metadata"][field] != wanted:
                raise KubeRefused(CONFLICT, "Conflict", path)
        if there is not None and options.get("propagationPolicy") == "Orphan":
            ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}
            self._keep(path, _merged(there, {"metadata": ending}))
            return
        for each in [each for each in self.objects if each == path or each.startswith(f"{path}/")]:
            del self.objects[each]


def _without(there: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any]) -> JsonObject:
    """Return the object without the fields that the last apply had and this one does not have."""
    kept = {}
    for name, value in there.items():
        was, is_now = before.get(name), now.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            kept[name] = _without(value, was, is_now if isinstance(is_now, dict) else {})
        elif name in now or name not in before:
            kept[name] = value
    return kept


def _merged(there: Mapping[str, Any], change: Mapping[str, Any]) -> JsonObject:
    """Return the object with a JSON merge patch (RFC 7386) applied."""
    merged = dict(there)
    for name, value in change.items():
        before = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merged(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = value
    return merged
