"""A ConsumerGroup on a real API server, its consumers on a real broker, and the operator's part that resets offsets.

No pods run here: a consumer joins while the Deployment declares replicas, and leaves when it declares none.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from confluent_kafka import ShareConsumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec.structs import replace

from barnabas_kafka.connection import connected_client
from barnabas_lag.evaluation.lags import GroupLags
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.group_admin import GroupAdmin
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.conditions import Refusal, time_text
from barnabas_operator.planning.groups.group_status import group_status
from barnabas_operator.planning.groups.reset_plan import GroupDescription, GroupSeen
from barnabas_operator.reconcile.groups.offset_resets import GroupEnvironment, OffsetResets
from barnabas_operator.reconcile.worker_environment import StatusWriter
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.schema_check import resource_of
from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

TARGET: Final = "billing"
REPLICAS: Final = 3
RECORDS: Final = 10
COMMITTED: Final = 8
SEEN: Final = GroupSeen(state="Empty", lags=GroupLags(None, {}, {}))
POLL_S: Final = 0.05


class ResetWorld:
    """One group with the name of its namespace and of its topic, which has one partition."""

    def __init__(self, plane: ControlPlane, bootstrap: str, name: str) -> None:
        self.plane = plane
        self.name = name
        self.client = StockClient(bootstrap)
        self.bootstrap = bootstrap
        self._ended = threading.Event()
        self._pods = threading.Thread(target=self._run_pods, name="pods")
        plane.requests.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        self.client.create_topic(name)
        self.client.write(name, [b"%d" % number for number in range(RECORDS)])

    def commit(self, offset: int = COMMITTED, metadata: str | None = None) -> None:
        """Commit an offset without being a member."""
        where = TopicPartition(self.name, 0, offset)
        if metadata is not None:
            where = TopicPartition(self.name, 0, offset, metadata=metadata)
        self.client.commit(self.name, where)

    def committed(self) -> tuple[int, str]:
        """Return the committed offset and its metadata; -1001 if there is none."""
        consumer = self.client.consumer(self.name)
        (told,) = consumer.committed([TopicPartition(self.name, 0)], PATIENCE_S)
        consumer.close()
        assert told.error is None, told.error
        return told.offset, told.metadata or ""

    def declare(self, reset: Mapping[str, Any] | None, **more: object) -> None:
        """Apply the ConsumerGroup; an earlier status is lost, as when a backup is restored."""
        body = self.manifest(reset, **more)
        if self.plane.requests.get("ConsumerGroup", self.name, self.name) is not None:
            self.plane.requests.delete("ConsumerGroup", self.name, self.name)
        self.plane.requests.create(body)

    def manifest(self, reset: Mapping[str, Any] | None, **more: object) -> dict[str, Any]:
        """Return the manifest of the ConsumerGroup."""
        offsets = {"reset": reset} if reset is not None else {}
        spec = {"cluster": "one", "offsets": offsets, "scaling": {"target": {"name": TARGET}}, **more}
        meta = {"name": self.name, "namespace": self.name}
        return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": meta, "spec": spec}

    def cluster_manifest(self) -> dict[str, Any]:
        """Return the manifest of its Cluster."""
        meta = {"name": "one", "namespace": self.name}
        return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": {"insecure": True}}

    def change(self, reset: Mapping[str, Any] | None) -> None:
        """Change the reset of the same resource, or remove it."""
        offsets = {"reset": reset} if reset is not None else {}
        change = [{"op": "add", "path": "/spec/offsets", "value": offsets}]
        self.plane.kubectl(
            "-n", self.name, "patch", "consumergroup", self.name, "--type=json", f"-p={json.dumps(change)}"
        )

    def deploy(self) -> None:
        """Apply the Deployment of the group's consumers."""
        labels = {"app": TARGET}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "b", "image": "b"}]}}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": TARGET, "namespace": self.name}
        self.plane.requests.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
        self._pods.start()
        wait_for(self.members, lambda count: count == 1)

    def members(self) -> int:
        """Return the number of present members."""
        found = self.client.admin.describe_consumer_groups([self.name])[self.name].result(PATIENCE_S)
        return len(found.members)

    def target(self) -> Mapping[str, Any]:
        """Return the Deployment."""
        found = self.plane.requests.get("Deployment", self.name, TARGET)
        assert found is not None
        return found

    def status(self) -> Mapping[str, Any]:
        """Return the status of the ConsumerGroup; empty if there is none."""
        found = self.plane.requests.get("ConsumerGroup", self.name, self.name) or {}
        return dict(found.get("status", {}))

    def told(self, kind: str = "OffsetsReset") -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        every = self.status().get("conditions", ())
        return next(
            ((each["status"], each["reason"], each.get("message", "")) for each in every if each["type"] == kind),
            ("", "", ""),
        )

    def look(self) -> tuple[str, str, str]:
        """Let an operator look once; return the condition that it wrote."""
        asyncio.run(self._look())
        return self.told()

    def end(self, policy: str) -> Refusal | None:
        """Return what the deletion of the resource with this policy waits for."""
        return asyncio.run(self._end(policy))

    async def _end(self, policy: str) -> Refusal | None:
        async with api_client(self.plane) as opened:
            with self._resets(KubeApi(opened)) as resets:
                group = await self._read(KubeApi(opened))
                spec = replace(group.spec, deletion_policy=policy)
                ending = replace(group, spec=spec)
                return await resets.clean_up(ending) or await resets.end(ending)

    async def _look(self) -> None:
        async with api_client(self.plane) as opened:
            api, clock = KubeApi(opened), SystemClock()
            with self._resets(api) as resets:
                group = await self._read(api)
                told = await resets.act(group)
            status = group_status(group, SEEN, told, None, "one", time_text(clock.now_ms()))
            (body,) = await api.listing("ConsumerGroup", self.name, {})
            await StatusWriter(api, clock).write([(replace(group, status=status), body)])

    async def _read(self, api: KubeApi) -> ConsumerGroup:
        (body,) = await api.listing("ConsumerGroup", self.name, {})
        return resource_of(ConsumerGroup, body)

    @contextmanager
    def _resets(self, api: KubeApi) -> Iterator[OffsetResets]:
        client = connected_client(self.bootstrap, PATIENCE_S, "operator")
        try:
            yield OffsetResets(GroupEnvironment(api, self.name, lambda: client, nullcontext, SystemClock()))
        finally:
            client.close()

    def _run_pods(self) -> None:
        consumer: Any = None
        while not self._ended.wait(POLL_S):
            wanted = self.target()["spec"]["replicas"] > 0
            if wanted and consumer is None:
                consumer = self._joined()
                consumer.subscribe([self.name])
            elif not wanted and consumer is not None:
                consumer.close()
                consumer = None
            if consumer is not None:
                self._work(consumer)
        if consumer is not None:
            consumer.close()

    def _joined(self) -> Any:
        return self.client.consumer(self.name, client_id="pod")

    def _work(self, consumer: Any) -> None:
        consumer.poll(0.05)

    def close(self) -> None:
        """End all consumers."""
        self._ended.set()
        if self._pods.is_alive():
            self._pods.join(PATIENCE_S)


class ShareWorld(ResetWorld):
    """A share group that begins at the earliest record, and a worker that accepts all."""

    def __init__(self, plane: ControlPlane, bootstrap: str, name: str) -> None:
        super().__init__(plane, bootstrap, name)
        self.accepted = 0
        """The number of records that the worker got; it accepts them with its next poll."""
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[earliest])
        self.client.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def members(self) -> int:
        return len(self.described().members)

    def described(self) -> GroupDescription:
        """Return the group as its coordinator describes it to the operator."""
        client = connected_client(self.bootstrap, PATIENCE_S, "the-test")
        try:
            return GroupAdmin(client, nullcontext).describe([self.name]).groups[self.name]
        finally:
            client.close()

    def _joined(self) -> Any:
        return ShareConsumer({**self.client.settings, "group.id": self.name, "client.id": "pod"})

    def _work(self, consumer: Any) -> None:
        self.accepted += sum(message.error() is None for message in consumer.poll(0.05))
