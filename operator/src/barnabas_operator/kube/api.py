"""The operator's few requests to the Kubernetes API, as JSON, and the meaning of refusals."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any, Final

from barnabas_kube.client import ApiClient, NoAnswer, StreamRefused
from barnabas_operator.kube.api_resources import api_resource_of, path_of
from barnabas_operator.planning.object_names import FIELD_MANAGER
from barnabas_operator.resources.json_types import Json

APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML.
MERGE: Final = "application/merge-patch+json"
REQUEST_S_MAX: Final = 15.0
PAGE: Final = 500
"""Objects in one answer: thousands at once would take the API server's memory, and ours."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY: Final = 429
INVALID: Final = (400, 422)
NONE_OF_ITS_KIND: Final = "failed to create typed patch object"  # The text of the status 500 for an unknown kind.
TWO_BUDGETS: Final = "more than one PodDisruptionBudget"  # The text for an eviction that two budgets forbid.


Selector = Mapping[str, str | Collection[str]]
"""The values that each label may have; "" for any value."""
Writing = Callable[[], AbstractContextManager[float]]


def _always() -> AbstractContextManager[float]:
    return nullcontext(REQUEST_S_MAX)


class KubeUnreachable(Exception):
    """The API server does not answer, or cannot now."""


class KubeRefused(Exception):
    """A refusal of the API server."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason} ({status}): {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_about_the_object(self) -> bool:
        """True if no such object can exist; otherwise the refusal is about rights or the moment."""
        return self.status in INVALID


class KubeApi:
    """Every method may raise KubeUnreachable and KubeRefused, and one that writes what `writing` raises."""

    def __init__(self, client: ApiClient, writing: Writing = _always) -> None:
        """Make a client. `writing` is entered for each write, and yields the seconds that it may take."""
        self._client = client
        self._writing = writing

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """The object; None where there is none. Raises KubeUnreachable and KubeRefused."""
        try:
            return await self.request("GET", path_of(kind, namespace, name))
        except KubeRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def listing(
        self, kind: str, namespace: str | None, labels: Selector, fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """All objects with these labels, and these fields by their paths."""
        return [item async for page in self.pages(kind, namespace, labels, fields) for item in page["items"]]

    async def pages(
        self,
        kind: str,
        namespace: str | None,
        labels: Selector | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """The same page by page, as answered, all from one version. One that takes minutes is refused (`Expired`)."""
        chosen = {"labelSelector": _chosen(labels or {}), "limit": str(PAGE)}
        if fields:
            chosen["fieldSelector"] = _chosen(fields)
        token: str | None = ""
        while token is not None:
            answer = await self.request("GET", path_of(kind, namespace), query=chosen)
            yield answer
            token = answer.get("metadata", {}).get("continue") or None
            chosen["continue"] = token or ""

    async def changes(
        self, kind: str, namespace: str | None, labels: Selector, version: int
    ) -> AsyncIterator[dict[str, Any]]:
        """Events of a watch, bookmarks among them, after this version, until the API server ends the stream."""
        query = {"labelSelector": _chosen(labels), "watch": "true", "allowWatchBookmarks": "true"}
        path = path_of(kind, namespace)
        try:
            async with aclosing(self._client.stream(path, {**query, "resourceVersion": str(version)})) as stream:
                async for lines in stream:
                    for line in lines:
                        yield json.loads(line)
        except NoAnswer as error:
            raise KubeUnreachable(str(error)) from error
        except StreamRefused as error:
            raise _refusal(f"GET {path}", error.status, str(error).encode()) from error

    async def apply(self, item: Json, *, is_dry_run: bool = False) -> dict[str, Any]:
        """Server-side apply: the fields named in `item` are the operator's, all others stay as they are.

        A dry run stores nothing.
        """
        meta = item["metadata"]
        path = path_of(item["kind"], meta.get("namespace"), meta["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"} | ({"dryRun": "All"} if is_dry_run else {})
        return await self.request("PATCH", path, query=query, body=item, content_type=APPLY)

    async def create(self, item: Json) -> dict[str, Any]:
        """A new object; its name may be left to the API server (`generateName`)."""
        return await self.request("POST", path_of(item["kind"], item["metadata"].get("namespace")), body=item)

    async def dry_run(self, item: Json) -> None:
        """Check by a dry run that such a new object would be accepted. One of that name may exist already."""
        path = path_of(item["kind"], item["metadata"].get("namespace"))
        try:
            await self.request("POST", path, query={"dryRun": "All", "fieldValidation": "Strict"}, body=item)
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise

    async def patch(
        self, kind: str, namespace: str | None, name: str, change: Json, *, subresource: str = ""
    ) -> dict[str, Any] | None:
        """Merge `change` into the object; return None if it does not exist."""
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        try:
            return await self.request("PATCH", path, body=change, content_type=MERGE)
        except KubeRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def delete(self, kind: str, namespace: str | None, name: str, **options: object) -> None:
        """Delete the object, if it exists. `options` are those of `DeleteOptions`.

        A precondition that does not hold is a refusal with the status `CONFLICT`.
        """
        try:
            await self.request("DELETE", path_of(kind, namespace, name), body=options)
        except KubeRefused as error:
            if error.status != NOT_FOUND:
                raise

    async def evict(self, namespace: str | None, pod: str, uid: str) -> None:
        """Evict the pod with this uid, if its PodDisruptionBudget allows it and the pod exists.

        If the budget does not allow it, the refusal has the status `TOO_MANY`; if the uid is another one, `CONFLICT`.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self.request("POST", f"{path_of('Pod', namespace, pod)}/eviction", body=body)
        except KubeRefused as error:
            if error.status != NOT_FOUND:
                raise

    async def delete_all(self, kind: str, namespace: str, labels: Mapping[str, str]) -> None:
        """Delete all objects with these labels."""
        await self.request("DELETE", path_of(kind, namespace), query={"labelSelector": _chosen(labels)})

    async def serves(self, kind: str) -> bool:
        """True if the API server has this kind. Of a group that others define it may have only some kinds."""
        place = api_resource_of(kind)
        try:
            found = await self.request("GET", f"/{place.api}")
        except KubeRefused as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return any(each["name"] == place.plural for each in found.get("resources", ()))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """One request and its answer."""
        is_write = method != "GET" and "dryRun" not in (query or {})
        with self._writing() if is_write else _always() as seconds_max:
            return await self._request(method, path, query or {}, body, content_type, min(REQUEST_S_MAX, seconds_max))

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None,
        content_type: str,
        seconds_max: float,
    ) -> dict[str, Any]:
        sent = json.dumps(body).encode() if body is not None else None
        try:
            answer = await self._client.request(method, path, query, sent, content_type, timeout_s=seconds_max)
        except NoAnswer as error:
            raise KubeUnreachable(str(error)) from error
        if answer.status >= 400:
            raise _refusal(f"{method} {path}", answer.status, answer.body)
        found: dict[str, Any] = json.loads(answer.body)
        return found


def _chosen(values: Selector) -> str:
    return ",".join(
        (f"{name}={value}" if value else name) if isinstance(value, str) else f"{name} in ({','.join(value)})"
        for name, value in values.items()
    )


def _refusal(what: str, status: int, body: bytes) -> Exception:
    """The API server says why in a `Status`; overload and upgrades are no refusal, unlike a budget that is used up.

    `what` is the request, which nobody knows from `Internal error occurred`.
    """
    text = body.decode(errors="replace")
    try:
        said = json.loads(text)
    except ValueError:
        said = {}
    message = str(said.get("message", text))
    if NONE_OF_ITS_KIND in message:
        return KubeRefused(INVALID[0], "Invalid", message)
    if TWO_BUDGETS in message:
        return KubeRefused(TOO_MANY, "TooManyRequests", message)
    causes = (said.get("details") or {}).get("causes", ())
    budgets = [each.get("message", "") for each in causes if each.get("reason") == "DisruptionBudget"]
    if status == TOO_MANY and budgets:
        return KubeRefused(status, str(said.get("reason")), "; ".join(budgets))
    if status == TOO_MANY or status >= 500:
        return KubeUnreachable(f"{what}: {status} {message}".strip())
    return KubeRefused(status, str(said.get("reason", "Refused")), message)
