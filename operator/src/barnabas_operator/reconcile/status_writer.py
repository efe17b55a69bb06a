"""Writes statuses, finalizers and Events of resources, and the field `insecure` of Clusters."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.conditions import KUBERNETES_ERROR, Refusal, time_text, with_problem
from barnabas_operator.planning.rules_of_kinds import status_events
from barnabas_operator.resources.api_objects import ResourceT, status_json
from barnabas_operator.resources.cluster import ClusterStatus
from barnabas_operator.resources.kind import MESSAGE_LENGTH_MAX, Json, Resource, Status, merge_conditions, shortened

T = TypeVar("T")


async def all_ended(works: Iterable[Awaitable[T]]) -> list[T]:
    """Run the awaitables concurrently. When all have ended, return their results, or raise the first failure."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def in_turns(work: Callable[[T], Awaitable[None]], items: Iterable[T], at_once_max: int) -> None:
    """Process at most `at_once_max` items at a time. Raise the first failure after all items have been processed."""
    turns = asyncio.Semaphore(at_once_max)

    async def one(item: T) -> None:
        async with turns:
            await work(item)

    await all_ended(map(one, items))


log = logging.getLogger(__name__)

FINALIZER: Final = "barnabas.dev/deletion-policy"
AT_ONCE_MAX: Final = 16


class EventWriter:
    """The writer of the Events that `kubectl describe` shows."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def tell(self, event: Mapping[str, Any]) -> None:
        """Send one Event; only log the error if the API server refuses the Event or does not answer."""
        about = event["involvedObject"]
        try:
            await self._api.create(event)
        except (KubeRefused, KubeUnreachable) as error:
            log.warning(
                "%s/%s: the Event %s could not be sent: %s", about["namespace"], about["name"], event["reason"], error
            )


class _Written(NamedTuple):
    uid: str
    version: int
    status: Status


class StatusWriter:
    """The writer of statuses and finalizers, with at most AT_ONCE_MAX requests at a time."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._events = EventWriter(api)
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._written: dict[tuple[str, str, str], _Written] = {}
        """The statuses that the watch has not reported yet, by kind, namespace and name."""
        self._refused: KubeRefused | None = None
        self.wrote_at = 0.0
        """The monotonic time at which the API server last answered a write without an error."""

    def begin(self) -> None:
        """Forget earlier refusals, because a reconciliation begins."""
        self._refused = None

    def check(self) -> None:
        """Raise KubeRefused if a write since `begin` was refused for a reason that may be temporary."""
        if self._refused is not None:
            raise self._refused

    def forget(self) -> None:
        """Forget the written statuses, so that the statuses of deleted objects do not fill the memory."""
        self._written.clear()

    async def write(self, changed: Iterable[tuple[ResourceT, Json]]) -> list[ResourceT]:
        """Write changed statuses, and send Events about the changes; return the resources that no longer exist."""
        resources = list(changed)
        there = await all_ended(self._write(resource, body) for resource, body in resources)
        return [resource for (resource, _), is_there in zip(resources, there, strict=True) if not is_there]

    async def _write(self, resource: Resource, body: Json) -> bool:
        """Write the status if it has changed; return False if the object does not exist."""
        known = self.newer_than(body)
        before = status_json(replace(resource, status=known)) if known is not None else body.get("status", {})
        new = _bounded(resource.status, known)
        resource = replace(resource, status=new)
        status = status_json(resource)
        if status == before:
            return True
        whole = {name: _patched(before.get(name), status.get(name)) for name in _fields(type(new))}
        meta = body["metadata"]
        async with self._turns:
            try:
                written = await self._api.patch(
                    resource.kind, meta["namespace"], meta["name"], {"status": whole}, subresource="status"
                )
            except KubeRefused as error:
                self._note(error)
                log.warning("%s/%s: the API server refused the status: %s", meta["namespace"], meta["name"], error)
                return True
            self.wrote_at = self._clock.monotonic_s()
            if written is None:
                return False
            about, version = written["metadata"]["uid"], int(written["metadata"]["resourceVersion"])
            self._written[_key(body)] = _Written(about, version, new)
            for event in status_events(resource, before, time_text(self._clock.now_ms())):
                await self._events.tell(event)
        return True

    def newer_than(self, body: Json) -> Status | None:
        """Return the written status that the watch has not reported yet, if there is one."""
        ours, meta = self._written.get(_key(body)), body["metadata"]
        if ours is None:
            return None
        if ours.uid == meta["uid"] and int(meta["resourceVersion"]) < ours.version:
            return ours.status
        del self._written[_key(body)]
        return None

    def newest(self, resource: ResourceT, body: Json) -> ResourceT:
        """Return the resource with the status that was written last, even if the watch has not reported it yet."""
        written = self.newer_than(body)
        return replace(resource, status=written) if written is not None else resource

    async def set_finalizer(self, body: Json, *, wanted: bool) -> bool:
        """Set or remove the operator's finalizer; return True if the object now is as wanted.

        Return False, without a write, if the object has changed since it was read, or if the finalizer would be set on
        an object that is being deleted or was deleted. Raises KubeRefused and KubeUnreachable.
        """
        meta = body["metadata"]
        if has_finalizer_as(body, wanted=wanted):
            return True
        finalizers: list[str] = meta.get("finalizers", [])
        if wanted and "deletionTimestamp" in meta:
            return False
        others = [each for each in finalizers if each != FINALIZER]
        return await self._finalizers(body, [*others, FINALIZER] if wanted else others)

    async def with_finalizers(
        self, resources: Iterable[ResourceT], bodies: Mapping[str, Json], needs_finalizer: Callable[[ResourceT], bool]
    ) -> list[ResourceT]:
        """Set or remove the finalizers of `resources`; return the resources whose finalizers are now as needed.

        If the API server refuses a change, the refusal is written into the status of the resource.
        """
        every = list(resources)
        found = await all_ended(
            self._has_finalizer(each, bodies[each.metadata.name], wanted=needs_finalizer(each)) for each in every
        )
        return [each for each, has_it in zip(every, found, strict=True) if has_it]

    async def _has_finalizer(self, resource: Resource, body: Json, *, wanted: bool) -> bool:
        try:
            return await self.set_finalizer(body, wanted=wanted)
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, f"the finalizer {FINALIZER} could not be changed: {error.message}")
            await self.write([(with_problem(resource, why, time_text(self._clock.now_ms())), body)])
            return False

    async def release(self, body: Json) -> bool:
        """Remove the finalizer; return True if the object no longer has it. Raises KubeUnreachable."""
        try:
            return await self.set_finalizer(body, wanted=False)
        except KubeRefused as error:
            meta = body["metadata"]
            log.warning("%s/%s: the finalizer could not be removed: %s", meta["namespace"], meta["name"], error)
            return False

    async def take_annotation(self, body: Json, name: str) -> None:
        """Remove the annotation of a request that was carried out, unless its value has changed meanwhile.

        Raises KubeRefused and KubeUnreachable.
        """
        kind, meta = body["kind"], body["metadata"]
        found = await self._api.get(kind, meta["namespace"], meta["name"])
        if found is None or _annotation(found, name) != _annotation(body, name):
            return
        change = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {name: None}}
        try:
            await self._api.patch(kind, meta["namespace"], meta["name"], {"metadata": change})
        except KubeRefused as error:
            if error.status != CONFLICT:  # After a conflict the next reconciliation tries again.
                raise

    async def write_insecure(self, body: Json) -> Json:
        """Write `spec.insecure: true` into a Cluster; return the object. Raises KubeRefused and KubeUnreachable."""
        kind, meta = body["kind"], body["metadata"]
        return await self._api.patch(kind, meta["namespace"], meta["name"], {"spec": {"insecure": True}}) or body

    def _note(self, error: KubeRefused) -> None:
        if not error.is_about_the_object:
            self._refused = error

    async def _finalizers(self, body: Json, finalizers: list[str]) -> bool:
        """Write the finalizers; return False, without a write, if the object was deleted or has changed meanwhile.

        If it has changed, a write could remove a finalizer that another client has just added.
        """
        meta = body["metadata"]
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}}
        try:
            async with self._turns:
                written = await self._api.patch(body["kind"], meta["namespace"], meta["name"], change)
                self.wrote_at = self._clock.monotonic_s()
        except KubeRefused as error:
            if error.status != CONFLICT:
                self._note(error)
                raise
            return False
        return written is not None or FINALIZER not in finalizers


def has_finalizer_as(body: Json, *, wanted: bool) -> bool:
    """True if the object has the finalizer and `wanted` is true, or lacks the finalizer and `wanted` is false."""
    return (FINALIZER in body["metadata"].get("finalizers", ())) == wanted


def _annotation(body: Json, name: str) -> str | None:
    text: str | None = (body["metadata"].get("annotations") or {}).get(name)
    return text


@cache
def _fields(kind: type[Status]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def _patched(before: Any, now: Any) -> Any:
    """Return the JSON merge patch from `before` to `now`, in which null removes a field."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return now
    return {name: _patched(before.get(name), now.get(name)) for name in {**before, **now}}


def _bounded(status: Status | None, known: Status | None) -> Status:
    """Return the status with messages short enough for the API server.

    A condition whose value is unchanged since the earlier status `known` keeps its lastTransitionTime.
    """
    assert status is not None, "the status of a resource must be set before the status is written"
    short = (replace(each, message=shortened(each.message, MESSAGE_LENGTH_MAX)) for each in status.conditions)
    status = replace(status, conditions=merge_conditions(known.conditions if known is not None else (), short))
    if not isinstance(status, ClusterStatus) or status.rolling is None:
        return status
    message = shortened(status.rolling.message, MESSAGE_LENGTH_MAX)
    return replace(status, rolling=replace(status.rolling, message=message))


def _key(body: Json) -> tuple[str, str, str]:
    meta = body["metadata"]
    return body["kind"], meta["namespace"], meta["name"]
