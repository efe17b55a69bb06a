"""Applies the Kubernetes objects of a Cluster that have changed since they were last applied."""

import json
import logging
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.admission.field_translation import in_declared_fields
from barnabas_operator.planning.brokers.pods import conflict, is_owned
from barnabas_operator.planning.refusal import INVALID_SPEC, KUBERNETES_ERROR, Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

log = logging.getLogger(__name__)

PASSING: Final = frozenset({"status", "metadata"})
OF_CONTROLLERS: Final = "deployment.kubernetes.io/"
DECLARED_OF_META: Final = ("labels", "annotations", "ownerReferences", "deletionTimestamp")


class _Said(NamedTuple):
    """An object as it was last sent, and the API server's answer: a refusal, or a digest of the stored object."""

    item: Json
    refusal: Refusal | None = None
    uid: str = ""
    version: int = 0
    content: bytes = b""


class ObjectRefused(Exception):
    """The error that an object cannot be applied; `refusal` has the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class AppliedObjects:
    """The applied objects of a Cluster. An invalid object is sent again only after a change or `forget`.

    An object that was refused for another reason, such as missing rights, is sent again in the next reconciliation.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._said: dict[tuple[str, str], _Said] = {}
        """The objects as they were last sent, by kind and name."""
        self._gone: set[tuple[str, str]] = set()
        """The applied objects that other clients have deleted, and that have not been created again yet."""

    def forget(self) -> None:
        """Forget the applied objects, so that all of them are applied again."""
        self._said.clear()

    def forget_one(self, kind: str, name: str) -> None:
        """Forget this applied object, so that it is applied again; do nothing if the object was refused as invalid."""
        said = self._said.get((kind, name))
        if said is not None and said.refusal is None:
            del self._said[kind, name]

    def object_event(self, found: Json, *, is_gone: bool) -> bool:
        """Forget an applied object that another client has changed or deleted, so that it is applied again.

        Returns True if `found` is such an object.
        """
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
        log.info("%s: applying an object again, because another client has %s %s %s", meta["namespace"], what, *key)
        return True

    async def apply(self, cluster: Cluster, item: Json) -> bool:
        """Apply the object `item`, unless the same object was already applied; return True if `item` was applied.

        Raises ObjectRefused if the API server refuses `item`, or if the Cluster does not own the existing object of
        this name. May also raise KubeUnreachable.
        """
        if self._is_known(item):
            return False
        try:
            found = await self._api.get(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            if found is not None and not is_owned(cluster, found):
                raise ObjectRefused(conflict(cluster, item, found))
            self._said.pop(_key(item), None)  # Until the API server answers, the stored object is unknown.
            made = await self._api.apply(item)
        except KubeRefused as error:
            raise self._refused(item, error) from error
        meta, key = made["metadata"], _key(item)
        self._said[key] = _Said(item, None, meta["uid"], int(meta["resourceVersion"]), _content(made))
        self._gone.discard(key)
        return True

    async def apply_all(self, cluster: Cluster, items: Iterable[Json]) -> Refusal | None:
        """Apply all objects; return why the first refused object was refused, or None. Raises KubeUnreachable."""
        refused = None
        for each in items:
            try:
                await self.apply(cluster, each)
            except ObjectRefused as error:
                refused = refused or error.refusal
        return refused

    async def remove_named(self, cluster: Cluster, kinds: Iterable[str], name: str) -> None:
        """Delete the objects of this name that the Cluster owns. Raises KubeRefused and KubeUnreachable."""
        for kind in kinds:
            found = await self._api.get(kind, cluster.metadata.namespace or "default", name)
            if found is not None and is_owned(cluster, found):
                await self.remove(kind, found)

    async def remove(self, kind: str, found: Json) -> None:
        """Delete the object with this uid. Raises KubeRefused and KubeUnreachable."""
        meta = found["metadata"]
        log.info("%s: deleting %s %s, which is no longer needed", meta["namespace"], kind, meta["name"])
        self.forget_one(kind, meta["name"])
        await self._api.delete(kind, meta["namespace"], meta["name"], preconditions={"uid": meta["uid"]})

    async def ask(self, item: Json) -> None:
        """Check by a dry run whether the API server accepts the object `item`, unless `item` was already applied.

        Raises ObjectRefused if `item` is invalid. May also raise KubeUnreachable.
        """
        if self._is_known(item):
            return
        try:
            await self._api.dry_run(item)
        except KubeRefused as error:
            # Ignore other errors, such as missing rights, because they may be gone when `item` is applied later.
            if error.is_about_the_object:
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
    """Return a digest of an object without its status, its managed fields, and the annotations that controllers add."""
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
