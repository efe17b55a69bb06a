"""A small client for the Kubernetes API, with JSON bodies."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any, Final, NamedTuple

from barnabas_kube.client import ApiClient, NoAnswer, StreamRefused
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.scaling import (
    BEFORE_RESET,
    BeforeReset,
    Scalers,
    TargetScale,
    before_text,
    scale_of,
)
from barnabas_operator.planning.object_names import FIELD_MANAGER
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ScaleTarget
from barnabas_operator.resources.kind import API_VERSION, Json


class ApiResource(NamedTuple):
    """The path prefix of a kind's group and version, and the plural name of the kind."""

    api: str
    plural: str
    namespaced: bool = True


API_RESOURCES: Final = {
    "StateDocument": ApiResource("apis/internal.barnabas.dev/v1", "statedocuments"),
    "CronJob": ApiResource("apis/batch/v1", "cronjobs"),
    "Job": ApiResource("apis/batch/v1", "jobs"),
    "ConfigMap": ApiResource("api/v1", "configmaps"),
    "Deployment": ApiResource("apis/apps/v1", "deployments"),
    "Event": ApiResource("api/v1", "events"),
    "HorizontalPodAutoscaler": ApiResource("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Namespace": ApiResource("api/v1", "namespaces", namespaced=False),
    "Node": ApiResource("api/v1", "nodes", namespaced=False),
    "PersistentVolume": ApiResource("api/v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": ApiResource("api/v1", "persistentvolumeclaims"),
    "Pod": ApiResource("api/v1", "pods"),
    "Secret": ApiResource("api/v1", "secrets"),
    "Service": ApiResource("api/v1", "services"),
    "ServiceAccount": ApiResource("api/v1", "serviceaccounts"),
    "StatefulSet": ApiResource("apis/apps/v1", "statefulsets"),
    "SparkApplication": ApiResource("apis/sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "StorageClass": ApiResource("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "Lease": ApiResource("apis/coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ApiResource("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ApiResource("apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": ApiResource("apis/monitoring.coreos.com/v1", "podmonitors"),
    "Role": ApiResource("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ApiResource("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}
"""The API resources of all kinds except the operator's own."""


def api_resource_of(kind: str) -> ApiResource:
    """Return the API resource of a kind. Raises KeyError if the operator does not use the kind."""
    return ApiResource(f"apis/{API_VERSION}", KINDS[kind].plural) if kind in KINDS else API_RESOURCES[kind]


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """Return the path of an object, or of all objects of the kind if `name` is None.

    If `namespace` is None, the path is that of the objects in all namespaces.
    """
    resource = api_resource_of(kind)
    inside = f"namespaces/{namespace}/" if resource.namespaced and namespace is not None else ""
    return f"/{resource.api}/{inside}{resource.plural}" + (f"/{name}" if name else "")


APPLY: Final = "application/apply-patch+yaml"  # The JSON of the bodies is also valid YAML.
MERGE: Final = "application/merge-patch+json"
REQUEST_S_MAX: Final = 15.0
PAGE: Final = 500
"""The most objects in one response, which limits the memory that a list needs."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY: Final = 429
INVALID: Final = (400, 422)
NONE_OF_ITS_KIND: Final = "failed to create typed patch object"  # The API server's message for an unknown kind.
TWO_BUDGETS: Final = "more than one PodDisruptionBudget"  # The API server's message for a pod with two budgets.


Selector = Mapping[str, str | Collection[str]]
"""The allowed values of each label that an object must have. An empty string allows any value."""
Writing = Callable[[], AbstractContextManager[float]]


def _always() -> AbstractContextManager[float]:
    return nullcontext(REQUEST_S_MAX)


class KubeUnreachable(Exception):
    """The error that the API server does not answer, or is overloaded or broken (429, 500 and above)."""


class KubeRefused(Exception):
    """The error that the API server has refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason} ({status}): {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_about_the_object(self) -> bool:
        """True if the object is invalid, and not only forbidden or in conflict with the current state."""
        return self.status in INVALID


class KubeApi:
    """A client for the Kubernetes API.

    Every method may raise KubeUnreachable and KubeRefused. Methods that write may also raise the exceptions of
    `writing`.
    """

    def __init__(self, client: ApiClient, writing: Writing = _always) -> None:
        """Make a client. A write runs in the context manager `writing`, which yields its time limit in seconds."""
        self._client = client
        self._writing = writing

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return the object; None if it does not exist."""
        try:
            return await self.request("GET", path_of(kind, namespace, name))
        except KubeRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def listing(
        self, kind: str, namespace: str | None, labels: Selector, fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Return all objects that match the label selector and the field selector."""
        return [item async for page in self.pages(kind, namespace, labels, fields) for item in page["items"]]

    async def pages(
        self,
        kind: str,
        namespace: str | None,
        labels: Selector | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the same objects as `listing`, page by page. All pages show the same resourceVersion."""
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
        """Yield the watch events after `version`, including bookmarks, until the API server ends the stream."""
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
        """Apply the object by server-side apply, with force; return the resulting object. A dry run stores nothing."""
        meta = item["metadata"]
        path = path_of(item["kind"], meta.get("namespace"), meta["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"} | ({"dryRun": "All"} if is_dry_run else {})
        return await self.request("PATCH", path, query=query, body=item, content_type=APPLY)

    async def create(self, item: Json) -> dict[str, Any]:
        """Create the object; return it as stored."""
        return await self.request("POST", path_of(item["kind"], item["metadata"].get("namespace")), body=item)

    async def dry_run(self, item: Json) -> None:
        """Check by a dry run whether the object could be created. An existing object of this name is no error."""
        path = path_of(item["kind"], item["metadata"].get("namespace"))
        try:
            await self.request("POST", path, query={"dryRun": "All", "fieldValidation": "Strict"}, body=item)
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise

    async def patch(
        self, kind: str, namespace: str | None, name: str, change: Json, *, subresource: str = ""
    ) -> dict[str, Any] | None:
        """Apply `change` as a JSON merge patch; return the stored object, or None if it does not exist."""
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        try:
            return await self.request("PATCH", path, body=change, content_type=MERGE)
        except KubeRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def delete(self, kind: str, namespace: str | None, name: str, **options: object) -> None:
        """Delete the object, if it exists. `options` are the fields of Kubernetes' `DeleteOptions`.

        If a precondition does not hold, KubeRefused has the status `CONFLICT`.
        """
        try:
            await self.request("DELETE", path_of(kind, namespace, name), body=options)
        except KubeRefused as error:
            if error.status != NOT_FOUND:
                raise

    async def evict(self, namespace: str | None, pod: str, uid: str) -> None:
        """Evict the pod with this uid, if it exists.

        KubeRefused has the status `TOO_MANY` if a PodDisruptionBudget forbids the eviction, and `CONFLICT` if the pod
        has another uid.
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
        """True if the API server has this kind."""
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
        """Send a request and return the JSON body of the response.

        A request that changes objects is sent inside the context manager `writing`. Raises KubeRefused for an error
        response, and KubeUnreachable if the API server does not answer in time.
        """
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
    """Return the exception for an error response to the request `what`.

    An unknown kind becomes KubeRefused with INVALID, and an eviction that PodDisruptionBudgets prevent becomes
    KubeRefused with TOO_MANY. Any other response with status 429, or 500 and above, becomes KubeUnreachable. All
    remaining responses become KubeRefused.
    """
    text = body.decode(errors="replace")
    try:
        status_object = json.loads(text)
    except ValueError:
        status_object = {}
    message = str(status_object.get("message", text))
    if NONE_OF_ITS_KIND in message:
        return KubeRefused(INVALID[0], "Invalid", message)
    if TWO_BUDGETS in message:
        return KubeRefused(TOO_MANY, "TooManyRequests", message)
    causes = (status_object.get("details") or {}).get("causes", ())
    budgets = [each.get("message", "") for each in causes if each.get("reason") == "DisruptionBudget"]
    if status == TOO_MANY and budgets:
        return KubeRefused(status, str(status_object.get("reason")), "; ".join(budgets))
    if status == TOO_MANY or status >= 500:
        return KubeUnreachable(f"{what}: {status} {message}".strip())
    return KubeRefused(status, str(status_object.get("reason", "Refused")), message)


AUTOSCALER: Final = "HorizontalPodAutoscaler"


class Scales:
    """The scales of Deployments and StatefulSets in one namespace.

    Every method may raise KubeUnreachable and KubeRefused. Writes raise KubeRefused with the status `CONFLICT` if the
    target has changed since `seen` was read. A returned Refusal says why the target cannot be scaled.
    """

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self, target: ScaleTarget) -> TargetScale | Refusal:
        """Return `spec.replicas` and the annotation `BEFORE_RESET` of the workload, or why it cannot be scaled."""
        return scale_of(target, await self._api.get(target.kind, self._namespace, target.name))

    async def scalers(self) -> Scalers:
        """Return the HorizontalPodAutoscalers and ConsumerGroups of the namespace, which may scale a target."""
        return Scalers(
            autoscalers=await self._api.listing(AUTOSCALER, self._namespace, {}),
            groups=await self._api.listing(CONSUMER_GROUP.name, self._namespace, {}),
        )

    async def scale(self, target: ScaleTarget, seen: TargetScale, replicas: int) -> TargetScale | Refusal:
        """Set the replicas by the subresource `scale`, like an autoscaler; return the new scale."""
        change = {"metadata": {"resourceVersion": seen.version}, "spec": {"replicas": replicas}}
        done = await self._api.patch(target.kind, self._namespace, target.name, change, subresource="scale")
        if done is None:
            return scale_of(target, None)
        return seen._replace(replicas=done["spec"].get("replicas", 0), version=done["metadata"]["resourceVersion"])

    async def remember(
        self, target: ScaleTarget, seen: TargetScale, before: BeforeReset | None
    ) -> TargetScale | Refusal:
        """Annotate the target with `before`, the state before an offset reset; None removes the annotation."""
        annotations = {BEFORE_RESET: before_text(before)}
        change = {"metadata": {"resourceVersion": seen.version, "annotations": annotations}}
        return scale_of(target, await self._api.patch(target.kind, self._namespace, target.name, change))
