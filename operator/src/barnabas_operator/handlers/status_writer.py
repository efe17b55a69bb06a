"""Writes statuses and finalizers back, only where they differ from what is there, and what is worth an Event."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from barnabas_operator.handlers.event_writer import EventWriter
from barnabas_operator.handlers.moment import now
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.planning.status_events import status_events
from barnabas_operator.resources.api_objects import status_json
from barnabas_operator.resources.cluster import Cluster, ClusterStatus
from barnabas_operator.resources.topic import Topic, TopicStatus

FINALIZER: Final = "barnabas.dev/deletion-policy"
AT_ONCE_MAX: Final = 16

Resource = TypeVar("Resource", Cluster, Topic)

_FIELDS: Final[Mapping[type, tuple[str, ...]]] = {
    kind: tuple(field.encode_name for field in msgspec.structs.fields(kind)) for kind in (ClusterStatus, TopicStatus)
}


class StatusWriter:
    """Patches many resources at once, a bounded number at a time."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._events = EventWriter(api)
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def write(self, changed: Iterable[tuple[Resource, Mapping[str, Any]]]) -> list[Resource]:
        """Each resource with its new status, and its object as it is now. Those whose object was found to be gone."""
        told = list(changed)
        there = await asyncio.gather(*(self._write(resource, body) for resource, body in told))
        return [resource for (resource, _), is_there in zip(told, there, strict=True) if not is_there]

    async def _write(self, resource: Cluster | Topic, body: Mapping[str, Any]) -> bool:
        """Whether the object is there, as far as is known."""
        status = status_json(resource)
        before = body.get("status", {})
        if status == before:
            return True
        whole = {name: status.get(name) for name in _FIELDS[type(resource.status)]}  # A null takes a field away.
        meta = body["metadata"]
        async with self._turns:
            written = await self._api.patch(
                resource.kind, meta["namespace"], meta["name"], {"status": whole}, subresource="status"
            )
            for event in status_events(resource, before, now()) if written is not None else ():
                await self._events.tell(event)
        return written is not None

    async def keep_held(self, body: Mapping[str, Any], *, wanted: bool) -> bool:
        """Whether the object is now held (it stays, when it is deleted, until it is let go) as it is wanted to be.

        Where it is not, somebody else changed it just now; the watch tells soon.
        """
        meta = body["metadata"]
        held: list[str] = meta.get("finalizers", [])
        if (FINALIZER in held) == wanted:
            return True
        if wanted and "deletionTimestamp" in meta:
            return False
        others = [each for each in held if each != FINALIZER]
        return await self._finalizers(body, [*others, FINALIZER] if wanted else others)

    async def release(self, body: Mapping[str, Any]) -> bool:
        """Lets it go; whether that was done."""
        return await self.keep_held(body, wanted=False)

    async def _finalizers(self, body: Mapping[str, Any], finalizers: list[str]) -> bool:
        """On the version that was read, so that nobody else's are lost."""
        meta = body["metadata"]
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}}
        try:
            async with self._turns:
                await self._api.patch(body["kind"], meta["namespace"], meta["name"], change)
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            return False
        return True
