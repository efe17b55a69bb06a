"""The replicas of the workload of a group's consumers, read and set on a real API server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, Scales
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.scaling import BeforeReset, Scalers, TargetScale
from barnabas_operator.resources.consumer_group import ScaleTarget
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

Result = TypeVar("Result")
BILLING = ScaleTarget(name="billing")
BEFORE = BeforeReset("bills", "2026-11-a", 3)


class Place:
    """A namespace of an API server that runs no controllers."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def apply(self, kind: str, replicas: int, *, labels: dict[str, str] | None = None) -> None:
        template = {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "b", "image": "b"}]}}
        spec: dict[str, Any] = {"replicas": replicas, "selector": {"matchLabels": {"app": "b"}}, "template": template}
        if kind == "StatefulSet":
            spec["serviceName"] = "b"
        meta = {"name": "billing", "namespace": self.namespace, "labels": labels or {}}
        self.plane.requests.apply({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})

    def replicas(self, kind: str = "Deployment") -> int:
        found = self.plane.requests.get(kind, self.namespace, "billing")
        assert found is not None
        return int(found["spec"]["replicas"])

    def run(self, work: Callable[[Scales], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            async with api_client(self.plane) as connection:
                return await work(Scales(KubeApi(connection), self.namespace))

        return asyncio.run(run())


@pytest.fixture
def place(defined_api_server: ControlPlane) -> Iterator[Place]:
    namespace = f"scales-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    yield Place(defined_api_server, namespace)
    defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def read(place: Place, target: ScaleTarget = BILLING) -> TargetScale:
    found = place.run(lambda scales: scales.read(target))
    assert isinstance(found, TargetScale)
    return found


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_replicas_are_read_and_set(place: Place, kind: Any) -> None:
    place.apply(kind, 2)
    target = ScaleTarget(kind=kind, name="billing")
    seen = read(place, target)
    assert (seen.replicas, seen.before) == (2, None)
    done = place.run(lambda scales: scales.scale(target, seen, 0))
    assert done == read(place, target), "the returned scale must be the stored one"
    assert place.replicas(kind) == 0


def test_the_reset_in_progress_is_stored_on_the_target_and_removed_afterwards(place: Place) -> None:
    place.apply("Deployment", 3)

    async def down_and_up(scales: Scales) -> tuple[TargetScale | Refusal, TargetScale | Refusal]:
        seen = await scales.read(BILLING)
        assert isinstance(seen, TargetScale)
        remembered = await scales.remember(BILLING, seen, BEFORE)
        assert isinstance(remembered, TargetScale)
        down = await scales.scale(BILLING, remembered, 0)
        assert isinstance(down, TargetScale)
        up = await scales.scale(BILLING, down, BEFORE.replicas)
        assert isinstance(up, TargetScale)
        return down, await scales.remember(BILLING, up, None)

    down, up = place.run(down_and_up)
    assert isinstance(down, TargetScale)
    assert isinstance(up, TargetScale)
    assert (down.replicas, down.before) == (0, BEFORE)
    assert (up.replicas, up.before) == (3, None)
    assert up == read(place)


@pytest.mark.parametrize("is_scale", [True, False])
def test_a_target_that_has_changed_since_it_was_read_is_not_changed(place: Place, is_scale: bool) -> None:
    place.apply("Deployment", 2)
    seen = read(place)
    place.apply("Deployment", 4)
    with pytest.raises(KubeRefused) as refused:
        place.run(lambda s: s.scale(BILLING, seen, 1) if is_scale else s.remember(BILLING, seen, BEFORE))
    assert refused.value.status == CONFLICT
    assert (place.replicas(), read(place).before) == (4, None)


def test_all_autoscalers_and_groups_of_a_namespace_are_listed(place: Place) -> None:
    assert place.run(lambda scales: scales.scalers()) == Scalers([], [])
    place.plane.kubectl("-n", place.namespace, "create", "deployment", "billing", "--image=b")
    place.plane.kubectl("-n", place.namespace, "autoscale", "deployment", "billing", "--max=3", "--name=by-hand")
    group = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "spec": {}}
    place.plane.requests.apply({**group, "metadata": {"name": "bills", "namespace": place.namespace}})
    found = place.run(lambda scales: scales.scalers())
    assert [each["metadata"]["name"] for each in found.autoscalers] == ["by-hand"]
    assert [each["metadata"]["name"] for each in found.groups] == ["bills"]
