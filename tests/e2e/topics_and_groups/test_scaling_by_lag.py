"""A group's target is scaled by lag on a real API server; looks at the group and the time are the test's."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from uuid import uuid4

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag
from barnabas_lag.evaluation.progress import Status
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.groups.scaling import WINDOW_S
from barnabas_operator.planning.groups.work_status import WorkStatus
from barnabas_operator.reconcile.groups.group_environment import GroupEnvironment
from barnabas_operator.reconcile.groups.lag_scaling import LagScaling
from barnabas_operator.resources.api_objects import resource_of
from barnabas_operator.resources.consumer_group import ConsumerGroup
from harness.manual_clock import ManualClock
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

LOOK_S = 15.0


def seen(lag: int, partitions: int = 12) -> GroupSeen:
    """One partition has all the lag."""
    place = PartitionLag(
        committed=10, end=10 + lag, lag=lag, lead=10, seconds=0.0, retention_percent=0.0, status=Status.OK
    )
    lags = GroupLags(None, {TopicPartition("flights", 0): place}, {})
    return GroupSeen(state="Stable", lags=lags, partition_counts={"flights": partitions})


class Place:
    """A namespace in which `billing` is a Deployment, and groups are looked at when the test says so."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.clock = ManualClock()

    def kubectl(self, *arguments: str) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments)

    def group(self, name: str, **scaling: object) -> ConsumerGroup:
        """As it is stored."""
        declared = {"target": {"name": "billing"}, "lagThreshold": 1000, **scaling}
        spec = {"scaling": {field: value for field, value in declared.items() if value is not None}}
        meta = {"name": name, "namespace": self.namespace}
        self.plane.requests.apply(
            {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": meta, "spec": spec}
        )
        found = self.plane.requests.get("ConsumerGroup", self.namespace, name)
        assert found is not None
        return resource_of(ConsumerGroup, found)

    def deployment(self, replicas: int) -> None:
        self.kubectl("create", "deployment", "billing", "--image=b", f"--replicas={replicas}")

    @property
    def replicas(self) -> int:
        return int(self.kubectl("get", "deployment", "billing", "-ojsonpath={.spec.replicas}"))

    @property
    def events(self) -> set[str]:
        return {each["message"] for each in self.plane.requests.listing("Event", self.namespace)}

    def look(self, *looks: tuple[ConsumerGroup, GroupSeen | WorkStatus]) -> list[WorkStatus]:
        """One operator's: each `LOOK_S` after the one before. A WorkStatus is what the parts before this one say."""

        async def run() -> list[WorkStatus]:
            async with api_client(self.plane) as connection:
                tools = GroupEnvironment(KubeApi(connection), self.namespace, object, nullcontext, self.clock)
                part = LagScaling(tools)
                return [await self._look(part, group, about) for group, about in looks]

        return asyncio.run(run())

    async def _look(self, part: LagScaling, group: ConsumerGroup, about: GroupSeen | WorkStatus) -> WorkStatus:
        self.clock.pass_time(LOOK_S)
        told, found = (WorkStatus(), about) if isinstance(about, GroupSeen) else (about, seen(9000))
        return await part.act(group, found, told)


@pytest.fixture
def place(defined_api_server: ControlPlane) -> Iterator[Place]:
    namespace = f"scaling-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    yield Place(defined_api_server, namespace)
    defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def said(told: WorkStatus) -> tuple[str, str, str]:
    """Status, reason and message of ScalingActive."""
    (found,) = (each for each in told.conditions if each.type == "ScalingActive")
    return found.status, found.reason, found.message


def test_lag_scales_up_and_five_calm_minutes_scale_down_and_both_are_told(place: Place) -> None:
    place.deployment(2)
    group = place.group("bills")
    told = place.look((group, seen(4800)), *[(group, seen(0))] * int(WINDOW_S / LOOK_S + 1))
    assert [each.replicas for each in told] == [5] * (len(told) - 1) + [3], "with 2 it did not keep up a moment ago"
    assert place.replicas == 3
    assert said(told[-1]) == ("True", "FollowsLag", "")
    assert place.events == {
        "scaled Deployment billing from 2 to 5 replicas: the lag is 4,800, and lagThreshold is 1,000 per replica",
        "scaled Deployment billing from 5 to 3 replicas: no lag for 5 minutes",
    }


def test_a_target_that_an_autoscaler_scales_is_left_to_it(place: Place) -> None:
    place.deployment(1)
    place.kubectl("autoscale", "deployment", "billing", "--max=3", "--name=by-hand")
    (told,) = place.look((place.group("bills"), seen(9000)))
    message = (
        "Deployment billing is scaled by the HorizontalPodAutoscaler by-hand; remove"
        " spec.scaling.lagThreshold, or delete the autoscaler and the object that creates it"
    )
    assert said(told) == ("False", "ResourceConflict", message)
    assert place.replicas == 1


def test_what_others_scale_in_between_is_noticed_before_anything_is_written(place: Place) -> None:
    place.deployment(4)
    group = place.group("bills")

    async def run() -> None:
        async with api_client(place.plane) as connection:
            tools = GroupEnvironment(KubeApi(connection), place.namespace, object, nullcontext, place.clock)
            part = LagScaling(tools)
            await place._look(part, group, seen(4000))
            place.kubectl("scale", "deployment", "billing", "--replicas=8")
            await place._look(part, group, seen(6000))

    asyncio.run(run())
    assert place.replicas == 8
    assert place.events == set()
