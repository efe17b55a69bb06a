"""A Cluster as processes on this machine: ports, files and processes for each of its brokers."""

import asyncio
import random
import socket
from pathlib import Path
from typing import Final

from barnabas_operator.app.broker_process import BrokerProcess, Say, broker_command
from barnabas_operator.app.data_dir import DataDir, replace_file
from barnabas_operator.planning.server_properties import HOST, BrokerPlace, properties_text, server_properties
from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.resources.cluster import Cluster, ClusterStatus, ListenerStatus
from barnabas_operator.resources.object_meta import READY, Condition, merge_conditions

# Below the range from which the system takes ports for outgoing connections: a broker that starts again gets its own.
OPEN_PORTS: Final = range(20_000, 32_000)
PORTS_TRIED: Final = 100


class PortTaken(Exception):
    """A port that the manifest names is in use."""


class LocalCluster:
    """The brokers of one Cluster. Ports that the manifest leaves open are chosen once and kept."""

    def __init__(self, data_dir: DataDir, say: Say) -> None:
        self.brokers: list[BrokerProcess] = []
        self._data_dir = data_dir
        self._say = say

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return ",".join(broker.place.address for broker in self.brokers)

    async def change(self, cluster: Cluster) -> None:
        """Brings the brokers to a manifest, one after another: those whose settings change start anew.

        Raises PortTaken before anything is touched, BrokerFailed at the first broker that does not start.
        """
        for place in self._places(cluster):
            text = properties_text(server_properties(cluster, place))
            running = self._running(place.broker_id)
            if running is not None:
                if self._file(place).read_text(encoding="utf-8") == text:
                    continue
                self._say(f"{running.name} restarts: its settings have changed")
                await running.stop()
                self.brokers.remove(running)
            await self._start_broker(place, text)

    async def stop(self) -> None:
        """Stops every broker."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers))

    def status(self, cluster: Cluster, now: str, problem: Refusal | None = None) -> ClusterStatus:
        """The Cluster's status: ready when each broker is, unless something else is in the way."""
        ready = sum(broker.ready.is_set() for broker in self.brokers)
        condition = _condition(cluster, ready, now, problem)
        (listener,) = cluster.spec.listeners
        before = cluster.status.conditions if cluster.status else ()
        return ClusterStatus(
            conditions=merge_conditions(before, (condition,)),
            observed_generation=cluster.metadata.generation,
            listeners=(ListenerStatus(name=listener.name, bootstrap_servers=self.bootstrap),),
            metrics=tuple(broker.place.metrics_url for broker in self.brokers),
            ready_brokers=ready,
        )

    async def _start_broker(self, place: BrokerPlace, settings: str) -> None:
        file = self._file(place)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, settings)
        broker = BrokerProcess(place, broker_command(file), self._say)
        try:
            seconds = await broker.start()
        except BaseException:
            await broker.stop()
            raise
        self.brokers.insert(place.broker_id, broker)
        self._say(f"{broker.name} is ready after {seconds:.2f} s: {place.address}, metrics {place.metrics_url}")

    def _running(self, broker_id: int) -> BrokerProcess | None:
        return next((broker for broker in self.brokers if broker.place.broker_id == broker_id), None)

    def _file(self, place: BrokerPlace) -> Path:
        return self._data_dir.broker_folder(place.broker_id) / "server.properties"

    def _places(self, cluster: Cluster) -> list[BrokerPlace]:
        """One place for each broker; one that had ports keeps them where the manifest lets it."""
        (listener,) = cluster.spec.listeners
        running = {broker.place.broker_id: broker.place for broker in self.brokers}
        kept = {**remembered_places(cluster), **running}
        places: list[BrokerPlace] = []
        for broker_id in range(cluster.spec.brokers.replicas):
            old, in_use = kept.get(broker_id), broker_id in running
            port = _port(listener.port and listener.port + broker_id, old.port if old else 0, in_use=in_use)
            http_port = _port(0, old.http_port if old else 0, in_use=in_use)
            folder = str(self._data_dir.broker_folder(broker_id))
            places.append(BrokerPlace(broker_id, port, http_port, folder, str(self._data_dir.metadata_file)))
        return places


def remembered_places(cluster: Cluster) -> dict[int, BrokerPlace]:
    """The ports of an earlier run, from the Cluster's status."""
    status = cluster.status
    if status is None or len(status.listeners) != 1:
        return {}
    ports = [int(address.rpartition(":")[2]) for address in status.listeners[0].bootstrap_servers.split(",")]
    http_ports = [int(url.rpartition(":")[2].partition("/")[0]) for url in status.metrics]
    pairs = enumerate(zip(ports, http_ports, strict=False))
    return {number: BrokerPlace(number, port, http_port, "", "") for number, (port, http_port) in pairs}


def _port(wanted: int, before: int, *, in_use: bool) -> int:
    """The declared port; else the one it had, else any that is free. Raises PortTaken."""
    if before and (in_use or _is_free(before)) and wanted in (0, before):
        return before
    if wanted and not _is_free(wanted):
        raise PortTaken(f"port {wanted} is in use; free it, or change spec.listeners[0].port (0 takes any free port)")
    return wanted or _any_free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _any_free_port() -> int:
    for port in random.sample(OPEN_PORTS, PORTS_TRIED):
        if _is_free(port):
            return port
    raise PortTaken(f"none of {PORTS_TRIED} ports tried between {OPEN_PORTS.start} and {OPEN_PORTS.stop} is free")


def _condition(cluster: Cluster, ready: int, now: str, problem: Refusal | None) -> Condition:
    wanted = cluster.spec.brokers.replicas
    reason = "BrokersReady" if ready == wanted else "BrokersNotReady"
    told = problem or Refusal(reason, f"{ready} of {wanted} brokers are ready")
    return Condition(
        type=READY,
        status="True" if problem is None and ready == wanted else "False",
        reason=told.reason,
        message=told.message,
        last_transition_time=now,
        observed_generation=cluster.metadata.generation,
    )
