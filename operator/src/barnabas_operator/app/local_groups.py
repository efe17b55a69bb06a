"""The consumer groups that manifest files declare, in a Cluster on this machine, and its lag exporter as a process."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials, Tls
from barnabas_operator.app.child_process import Child, ChildFailed, ChildProcess, DataDir, Say, end_leftover
from barnabas_operator.app.local_cluster import any_free_port, is_free
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.kafka.group_admin import GroupReader, ObservedGroups
from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused
from barnabas_operator.planning.brokers.broker_security import HOST
from barnabas_operator.planning.brokers.local_properties import name_options, tls_options
from barnabas_operator.planning.conditions import CLUSTER_NOT_READY, Refusal, owners, time_text, with_problem
from barnabas_operator.planning.groups.group_status import unheard
from barnabas_operator.planning.object_names import LAG_EXPORTER_PORT
from barnabas_operator.reconcile.groups.group_poller import GroupClient
from barnabas_operator.reconcile.groups.group_work import GroupWork
from barnabas_operator.reconcile.groups.offset_resets import GroupEnvironment
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.security import LagExporter

GROUPS_POLL_S: Final = 15.0
PATIENCE_S: Final = 60.0


class NoKubeApi(KubeApi):
    """A stand-in for the client of the Kubernetes API, for a machine without Kubernetes; it refuses every request."""

    def __init__(self) -> None:
        """Create a client that connects to no API server."""

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Raise KubeRefused for every request."""
        raise KubeRefused(NOT_FOUND, "NotFound", "`barnabas up` runs without Kubernetes")


class Groups(NamedTuple):
    """The declared groups, and the groups that are no longer declared but wait for their deletion, with statuses."""

    declared: tuple[ConsumerGroup, ...]
    removed: tuple[ConsumerGroup, ...]
    is_busy: bool


class LocalGroups:
    """The groups of one Cluster; `bootstrap` returns the addresses of the Cluster's brokers."""

    def __init__(
        self, bootstrap: Callable[[], str], writing: TimedWrite, clock: Clock, security: Callable[[], Credentials]
    ) -> None:
        self._clock: Final = clock
        self._client: Final = GroupClient(bootstrap, security)
        self._reader: Final = GroupReader(PATIENCE_S, clock)
        self._work: Final = GroupWork(GroupEnvironment(NoKubeApi(), "default", self._client.connected, writing, clock))

    def close(self) -> None:
        """Close the connections to brokers."""
        self._client.drop()

    async def bring(
        self, cluster: Cluster, declared: Sequence[ConsumerGroup], removed: Sequence[ConsumerGroup]
    ) -> Groups:
        """Reconcile each declared group once; carry out the deletion policies of groups that are no longer declared.

        Return the declared groups, and the groups in `removed` whose deletion must wait, with their new statuses.
        """
        observed = await self._read_groups(declared) if declared else ObservedGroups({}, "")
        owned = owners(declared, lambda group: group.group_id)
        worked = [await self._bring(cluster, group, owned, observed) for group in declared]
        ended = [await self._end(group, owned) for group in removed]
        stay = tuple(group for group in ended if group is not None)
        groups = tuple(group for group, _ in worked)
        return Groups(groups, stay, bool(stay) or any(is_busy for _, is_busy in worked))

    async def _read_groups(self, groups: Sequence[ConsumerGroup]) -> ObservedGroups:
        group_ids = {group.group_id for group in groups}
        try:
            return await asyncio.to_thread(lambda: self._reader.read(self._client.connected, group_ids))
        except ClusterUnreachable as error:
            self._client.drop()
            return ObservedGroups({}, str(error))

    async def _bring(
        self, cluster: Cluster, group: ConsumerGroup, owned: Mapping[str, ConsumerGroup], observed: ObservedGroups
    ) -> tuple[ConsumerGroup, bool]:
        seen = observed.groups.get(group.group_id)
        worked = await self._work.bring(cluster, group, owned[group.group_id], seen) if seen is not None else None
        if worked is not None:
            return worked.group, worked.is_busy
        why = Refusal(CLUSTER_NOT_READY, f"the brokers do not answer: {observed.unheard or 'trying again'}")
        return unheard(group, why, self._now()), True

    async def _end(self, group: ConsumerGroup, owned: Mapping[str, ConsumerGroup]) -> ConsumerGroup | None:
        """Carry out the deletion policy of a group; if the deletion must wait, return the group with the reason."""
        try:
            why = await self._work.end(group, owned)
        except ClusterUnreachable as error:
            why = Refusal(CLUSTER_NOT_READY, f"the brokers do not answer: {error}")
        return with_problem(group, why, self._now()) if why is not None else None

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


class _Companion:
    """A process beside the brokers, which do not need it; if it cannot start, only its error is printed."""

    def __init__(self, data_dir: DataDir, command: str, name: str, say: Say) -> None:
        self._folder = data_dir.path / command
        self._command, self._name = command, name
        self._say = say
        self._process: ChildProcess | None = None
        self._started: Sequence[str] | None = None
        self._failure = ""

    async def run(self, options: Sequence[str] | None, port: int, serves: str) -> None:
        """Run the process with these options, or none if they are None, at the port if it is free.

        `serves` is the line about the running process, with `{}` for its address.
        """
        if options == self._started:
            return
        await self.stop()
        if options is not None:
            await self._start(options, port if is_free(port) else any_free_port(set()), serves)

    async def stop(self) -> None:
        """Stop the process, if it runs."""
        process, self._process, self._started = self._process, None, None
        if process is not None:
            await process.stop()
            self._say(f"{self._name} has ended")

    async def _start(self, options: Sequence[str], port: int, serves: str) -> None:
        await end_leftover(self._folder, self._command, self._name, self._say)
        process = ChildProcess(self._child(options, port), self._say, lambda: None)
        self._process = process
        try:
            await process.start()
        except ChildFailed as error:
            if str(error) != self._failure:
                self._say(str(error))
            self._failure, self._process = str(error), None
            return
        self._started, self._failure = options, ""
        self._say(f"{self._name} {serves.format(f'http://{HOST}:{port}')}")

    def _child(self, options: Sequence[str], port: int) -> Child:
        listening = f"--listen-address={HOST}:{port}"
        return Child(
            name=self._name,
            folder=self._folder,
            log_name=f"{self._command}.log",
            http_port=port,
            ready_path="/healthz",
            command=(sys.executable, "-m", "barnabas", self._command, *options, listening),
        )


class LocalExporter:
    """The lag exporter of a Cluster that declares one, at the default port of kafka_exporter if the port is free."""

    def __init__(self, data_dir: DataDir, say: Say) -> None:
        self._companion = _Companion(data_dir, "lag-exporter", "the lag exporter", say)
        self.stop: Final = self._companion.stop

    async def bring(self, declared: LagExporter | None, bootstrap: str, tls: Tls | None) -> None:
        """Start, stop or restart the lag exporter as the Cluster declares; `tls` is for its connections to brokers."""
        options = None
        if declared is not None:
            options = (f"--bootstrap={bootstrap}", *tls_options(tls), *name_options(declared))
        await self._companion.run(options, LAG_EXPORTER_PORT, "serves the lag of groups: {}/metrics")


class LocalConsole:
    """The console of a Cluster without security; `port` is None if nobody asked for it.

    In a secured Cluster the console could only look as the operator does, with all rights. So it is not started there.
    """

    def __init__(self, data_dir: DataDir, port: int | None, say: Say) -> None:
        self._companion = _Companion(data_dir, "console", "the console", say)
        self.stop: Final = self._companion.stop
        self._port = port
        self._say = say
        self._is_announced = False

    async def bring(self, bootstrap: str, tls: Tls | None) -> None:
        """Start or restart the console, or stop it if the Cluster has become a secured one."""
        is_wanted = self._port is not None and tls is None
        if self._port is not None and tls is not None and not self._is_announced:
            self._say(
                "the console does not start beside a secured Cluster: run `barnabas console --command-config FILE`"
            )
        self._is_announced = tls is not None
        options = (f"--bootstrap={bootstrap}",) if is_wanted else None
        await self._companion.run(options, self._port or 0, "shows the cluster: {}/")
