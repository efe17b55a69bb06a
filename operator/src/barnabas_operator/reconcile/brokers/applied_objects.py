"""The application of a Cluster's objects, as far as they differ from those last applied."""

import json
import logging
from hashlib import blake2b
from typing import Final, NamedTuple

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.admission.field_translation import in_declared_fields
from barnabas_operator.planning.brokers.ownership import conflict, is_owned
from barnabas_operator.planning.refusal import INVALID_SPEC, KUBERNETES_ERROR, Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

log = logging.getLogger(__name__)

PASSING: Final = frozenset({"status", "metadata"})
OF_CONTROLLERS: Final = "deployment.kubernetes.io/"
DECLARED_OF_META: Final = ("labels", "annotations", "ownerReferences", "deletionTimestamp")


class _Said(NamedTuple):
    """An object as it was last sent, with its refusal, or else with the state that the API server made of it."""

    item: Json
    refusal: Refusal | None = None
    uid: str = ""
    version: int = 0
    content: bytes = b""


class ObjectRefused(Exception):
    """The API server can never accept the object, because of the resource that declares it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class AppliedObjects:
    """The applied objects of a Cluster. One that can never be valid is sent again only after a change or `forget`.

    What was refused for another reason may be taken the next time: an API server that starts knows nobody's rights yet.
    `hear` learns what others have changed or deleted, and that is applied again.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._said: dict[tuple[str, str], _Said] = {}
        """The objects as they were last sent, by kind and name."""
        self._gone: set[tuple[str, str]] = set()
        """The objects that were applied, deleted by other clients, and not yet created again."""

    def forget(self) -> None:
        """Forget the applied objects, so that all of them are applied again."""
        self._said.clear()

    def forget_one(self, kind: str, name: str) -> None:
        """Apply the object again, as the operator changes or deletes it in other ways; not if it was refused."""
        said = self._said.get((kind, name))
        if said is not None and said.refusal is None:
            del self._said[kind, name]

    def object_event(self, found: Json, *, is_gone: bool) -> bool:
        """An event of the watch. Whether to apply the object again, because others changed or deleted it."""
        key, meta = _key(found), found["metadata"]
        said = self._said.get(key)
        if said is None or said.refusal is not None:
            return False
        if is_gone and said.uid == meta["uid"]:
            self._gone.add(key)
        elif is_gone or int(meta["resourceVersion"]) <= said.version or _content(found) == said.content:
            return False
        del self._said[key]
        what = "deleted" if is_gone else "changed"
        log.info("%s: others have %s %s %s: applying it again", meta["namespace"], what, *key)
        return True

    async def apply(self, cluster: Cluster, item: Json) -> bool:
        """Apply the item if it has changed; return whether it had. Raises ObjectRefused and KubeUnreachable.

        An object of that name that the Cluster does not own stays as it is; the item is refused.
        """
        if self._is_known(item):
            return False
        try:
            found = await self._api.get(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            if found is not None and not is_owned(cluster, found):
                raise ObjectRefused(conflict(cluster, item, found))
            self._said.pop(_key(item), None)  # The state is unknown until the API server answers.
            made = await self._api.apply(item)
        except KubeRefused as error:
            raise self._refused(item, error) from error
        meta, key = made["metadata"], _key(item)
        self._said[key] = _Said(item, None, meta["uid"], int(meta["resourceVersion"]), _content(made))
        self._gone.discard(key)
        return True

    async def remove(self, kind: str, found: Json) -> None:
        """Delete exactly this object, which the Cluster no longer needs. Raises KubeRefused and KubeUnreachable."""
        meta = found["metadata"]
        log.info("%s: %s %s is no longer needed and is deleted", meta["namespace"], kind, meta["name"])
        self.forget_one(kind, meta["name"])
        await self._api.delete(kind, meta["namespace"], meta["name"], preconditions={"uid": meta["uid"]})

    async def ask(self, item: Json) -> None:
        """Dry-run the item as a new object; only `apply` tests an update.

        Raises ObjectRefused and KubeUnreachable.
        """
        if self._is_known(item):
            return
        try:
            await self._api.dry_run(item)
        except KubeRefused as error:
            if error.is_about_the_object:  # Other errors, such as a quota, are about the dry run's extra object.
                raise self._refused(item, error) from error

    def _is_known(self, item: Json) -> bool:
        said = self._said.get(_key(item))
        if said is None or said.item != item:
            return False
        if said.refusal is not None:
            raise ObjectRefused(said.refusal)
        return True

    def _refused(self, item: Json, error: KubeRefused) -> ObjectRefused:
        refusal = _refusal(item, error, is_gone=_key(item) in self._gone)
        if error.is_about_the_object:
            self._said[_key(item)] = _Said(item, refusal)
        return ObjectRefused(refusal)


def _key(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _content(found: Json) -> bytes:
    """Return a digest of an object without times, writers and the status that controllers report."""
    meta = {name: found["metadata"].get(name) for name in DECLARED_OF_META}
    said = meta["annotations"] or {}
    meta["annotations"] = {name: text for name, text in said.items() if not name.startswith(OF_CONTROLLERS)}
    body = {name: value for name, value in found.items() if name not in PASSING}
    return blake2b(json.dumps([meta, body], sort_keys=True).encode(), digest_size=16).digest()


def _refusal(item: Json, error: KubeRefused, *, is_gone: bool) -> Refusal:
    reason = INVALID_SPEC if error.is_about_the_object else KUBERNETES_ERROR
    said = in_declared_fields(item["kind"], error.message)
    name = f"{item['kind']} {item['metadata']['name']}"
    return Refusal(reason, f"{name} is missing and cannot be created: {said}" if is_gone else f"{name}: {said}")
