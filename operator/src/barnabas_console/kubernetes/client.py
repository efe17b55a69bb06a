"""The resources of one namespace, read from the Kubernetes API with the console's account or with a visitor's token.

Environment variables, volumes and Spark's configuration of a run are not read, because they may hold secrets.
"""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from barnabas_console.model.details import Manifest, Roll
from barnabas_console.model.inputs import InvalidInput
from barnabas_kube.access import Access
from barnabas_kube.client import ApiClient, NoAnswer, parse_status
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import API_VERSION, Kind
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.yaml_documents import yaml_text

REQUEST_S: Final = 5.0
PAGE: Final = 500
OBJECTS_MAX: Final = 5_000
"""The most objects of a list; a notice says that there are more."""
ASKING_MAX: Final = 16
"""The requests of all visitors at one time; beyond that, a page says that it is too many."""
KEPT_S: Final = 5.0
"""The seconds for which a list is kept for the same token, because a page may be loaded again and again."""
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,8000}")
OF_KIND: Final[Mapping[str, Kind]] = {"topic": TOPIC, "group": CONSUMER_GROUP}
LEFT_OUT: Final = frozenset({"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"})
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
T = TypeVar("T")


class KubernetesRefused(Exception):
    """The error that the API server gives no answer that can be shown; the message has the reason."""

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_GATEWAY) -> None:
        super().__init__(text)
        self.status: Final = status


class Meta(msgspec.Struct, rename="camel"):
    """The metadata of an object, as far as they are shown."""

    name: str
    creation_timestamp: str = ""


class RunSpec(msgspec.Struct):
    """The spec of a MaintenanceJob, as far as it is shown."""

    job: str
    cluster: str | None = None
    options: dict[str, str] = {}


class Count(msgspec.Struct):
    """The number of records that a run has handled."""

    done: int


class Condition(msgspec.Struct):
    """A condition of a resource."""

    type: str = ""
    message: str = ""


class RunStatus(msgspec.Struct, rename="camel"):
    """The status of a MaintenanceJob."""

    phase: str = "Pending"
    cluster: str | None = None
    start_time: str = ""
    completion_time: str = ""
    duration: str = ""
    attempts: int = 0
    activity: str = ""
    progress: str = ""
    records: Count | None = None
    ledger: str = ""
    result: dict[str, Any] = {}
    conditions: list[Condition] = []


class Run(msgspec.Struct):
    """A MaintenanceJob."""

    metadata: Meta
    spec: RunSpec
    status: RunStatus = msgspec.field(default_factory=RunStatus)


class _Rolling(msgspec.Struct, rename="camel"):
    remaining: tuple[int, ...] = ()
    restarting: tuple[int, ...] = ()
    blocked_by: str = ""
    message: str = ""


class _ClusterStatus(msgspec.Struct, rename="camel"):
    cluster_id: str | None = None
    rolling: _Rolling | None = None


class _Cluster(msgspec.Struct):
    metadata: Meta
    status: _ClusterStatus = msgspec.field(default_factory=_ClusterStatus)


class _NamesSpec(msgspec.Struct, rename="camel"):
    cluster: str | None = None
    topic_name: str | None = None
    group_id: str | None = None


class _Declared(msgspec.Struct):
    metadata: Meta
    spec: _NamesSpec = msgspec.field(default_factory=_NamesSpec)

    @property
    def kafka_name(self) -> str:
        """The name of the topic or group that the resource declares."""
        return self.spec.topic_name or self.spec.group_id or self.metadata.name


class _ListMeta(msgspec.Struct):
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[msgspec.Raw]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class Kubernetes:
    """The reader of one namespace. `token` is a visitor's, or None for the console's own account.

    With `is_visitors`, the console has no account, and each visitor needs a token. `steady_s` never goes back.
    """

    def __init__(self, api: ApiClient, namespace: str, steady_s: Callable[[], float], *, is_visitors: bool) -> None:
        self._api = api
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}"
        self._steady_s = steady_s
        self.is_visitors: Final = is_visitors
        self._asking = 0
        self._lists: dict[tuple[str | None, str], tuple[float, list[Any], bool]] = {}

    async def runs(self, token: str | None) -> tuple[Sequence[Run], bool]:
        """Return the MaintenanceJobs, and True if there are more than OBJECTS_MAX. Raises KubernetesRefused."""
        return await self._all(MAINTENANCE_JOB.plural, Run, token)

    async def run(self, name: str, token: str | None) -> Run:
        """Return a MaintenanceJob. Raises KubernetesRefused."""
        return await self._ask(f"{MAINTENANCE_JOB.plural}/{quote(name, safe='')}", {}, Run, token)

    async def roll(self, cluster_id: str, token: str | None) -> Roll | None:
        """Return the roll of the Cluster with this id; None if no Cluster rolls. Raises KubernetesRefused."""
        found = await self._cluster(cluster_id, token)
        rolling = None if found is None else found.status.rolling
        return None if rolling is None else Roll(*msgspec.structs.astuple(rolling))

    async def declared(self, kind: str, name: str, cluster_id: str, token: str | None) -> Manifest | None:
        """Return the resource that declares a topic or group of the cluster, or None. Raises KubernetesRefused."""
        cluster = await self._cluster(cluster_id, token)
        if cluster is None:
            return None
        of_kind = OF_KIND[kind]
        some, _ = await self._all(of_kind.plural, _Declared, token)
        found = next(
            (e for e in some if e.kafka_name == name and e.spec.cluster in (None, cluster.metadata.name)), None
        )
        if found is None:
            return None
        path = f"{of_kind.plural}/{quote(found.metadata.name, safe='')}"
        return Manifest(
            of_kind.name, found.metadata.name, manifest_text(await self._ask(path, {}, dict[str, Any], token))
        )

    async def _cluster(self, cluster_id: str, token: str | None) -> _Cluster | None:
        some, _ = await self._all(CLUSTER.plural, _Cluster, token)
        return next((each for each in some if each.status.cluster_id == cluster_id), None)

    async def _all(self, plural: str, kind: type[T], token: str | None) -> tuple[list[T], bool]:
        """Return the objects of a kind, at most OBJECTS_MAX, and True if there are more."""
        now_s = self._steady_s()
        self._lists = {key: kept for key, kept in self._lists.items() if kept[0] > now_s}
        if (token, plural) in self._lists:
            return self._lists[token, plural][1:]
        items: list[T] = []
        query = {"limit": str(PAGE)}
        while True:
            answer = await self._ask(plural, query, _List, token)
            items += [_decoded(each, kind) for each in answer.items]
            if not answer.metadata.token or len(items) >= OBJECTS_MAX:
                break
            query = {**query, "continue": answer.metadata.token}
        self._lists[token, plural] = now_s + KEPT_S, items, bool(answer.metadata.token)
        return items, bool(answer.metadata.token)

    async def _ask(self, path: str, query: Mapping[str, str], kind: type[T], token: str | None) -> T:
        if token is None and self.is_visitors:
            raise KubernetesRefused("give your Kubernetes token first, at /kubernetes", HTTPStatus.FORBIDDEN)
        if self._asking >= ASKING_MAX:
            text = f"{ASKING_MAX} requests wait for the Kubernetes API; try again later"
            raise KubernetesRefused(text, HTTPStatus.SERVICE_UNAVAILABLE)
        self._asking += 1
        try:
            answer = await self._api.request("GET", f"{self._path}/{path}", query, timeout_s=REQUEST_S, token=token)
        except NoAnswer as error:
            raise KubernetesRefused(f"the Kubernetes API does not answer: {error}") from error
        finally:
            self._asking -= 1
        if answer.status == HTTPStatus.NOT_FOUND:
            raise KubernetesRefused(f"the Kubernetes API: {parse_status(answer.body).message}", HTTPStatus.NOT_FOUND)
        if answer.status != HTTPStatus.OK:
            raise KubernetesRefused(f"the Kubernetes API refuses: {parse_status(answer.body).message}")
        return _decoded(answer.body, kind)


def _decoded(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise KubernetesRefused(f"the answer of the Kubernetes API is invalid: {error}") from error


def manifest_text(found: Mapping[str, Any]) -> str:
    """Return a resource as YAML for `kubectl apply`, without what the API server and the operator add."""
    meta = {name: value for name, value in found["metadata"].items() if name not in LEFT_OUT}
    notes = {name: text for name, text in meta.pop("annotations", {}).items() if name != LAST_APPLIED}
    meta.pop("finalizers", None)
    head = {"apiVersion": found["apiVersion"], "kind": found["kind"]}
    return yaml_text({**head, "metadata": {**meta, **({"annotations": notes} if notes else {})}, "spec": found["spec"]})


def checked_token(text: str) -> str:
    """Return a token; empty means none. Raises InvalidInput, without the token."""
    if text and not TOKEN.fullmatch(text):
        raise InvalidInput("token", f"{len(text)} characters", "the text that `kubectl create token NAME` prints")
    return text


def without_identity(access: Access) -> Access:
    """Return the access without this process's token and certificate, for requests that carry a visitor's token."""
    if access.tls is None:
        return access._replace(read_token=lambda: None)
    tls = ssl.create_default_context(cadata=b"".join(access.tls.get_ca_certs(binary_form=True)))
    tls.check_hostname, tls.verify_mode = access.tls.check_hostname, access.tls.verify_mode
    return access._replace(tls=tls, read_token=lambda: None)
