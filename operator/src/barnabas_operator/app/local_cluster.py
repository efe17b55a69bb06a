"""A Cluster as processes on this machine: the ports, files and processes of its brokers."""

import asyncio
import datetime as dt
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from barnabas_kafka.security import Credentials, Security, Tls
from barnabas_operator.app.child_process import Child, ChildProcess, DataDir, Say, end_leftover, replace_secret_file
from barnabas_operator.app.local_users import LocalSecurity, of_operator
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.broker_security import HOST, BrokerSecrets, is_secured, users_of
from barnabas_operator.planning.brokers.broker_steps import (
    BalanceLeaders,
    BrokerStep,
    BrokerView,
    RemoveBroker,
    RestartBroker,
    StartBrokers,
    balances_leaders,
    next_step,
)
from barnabas_operator.planning.brokers.cluster_checks import reported_metadata_version
from barnabas_operator.planning.brokers.local_properties import BrokerPlace, properties_text, server_properties
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.status.cluster_status import is_fault, reassignment_conditions, unserved
from barnabas_operator.planning.topics.reconcile_plan import MovePlan
from barnabas_operator.planning.topics.topic_plan import cluster_losses
from barnabas_operator.resources.cluster import Cluster, ClusterStatus, ListenerStatus
from barnabas_operator.resources.kind import READY, Condition, merge_conditions

# The range is below the ephemeral ports, so that a restarted broker can get its previous port again.
OPEN_PORTS: Final = range(20_000, 32_000)
PORTS_TRIED: Final = 100
PROPERTIES: Final = "server.properties"


class PortTaken(Exception):
    """The error that a declared port is in use, or that no free port was found."""


class BrokerProcess(ChildProcess):
    """A supervised broker, with its ports and its folder."""

    def __init__(self, place: BrokerPlace, properties_file: Path, say: Say, on_change: Callable[[], None]) -> None:
        """Create the broker without starting it; `on_change` is called when the broker has died or is ready again."""
        self.place = place
        child = Child(
            name=f"broker {place.broker_id}",
            folder=Path(place.folder),
            log_name="broker.log",
            http_port=place.http_port,
            ready_path="/startupz",
            command=(sys.executable, "-m", "barnabas", "broker", str(properties_file)),
        )
        super().__init__(child, say, on_change)


class LocalCluster:
    """The brokers of one Cluster, by their ids.

    Ports that the manifest does not declare are chosen once and kept.
    """

    def __init__(self, data_dir: DataDir, say: Say, on_change: Callable[[], None]) -> None:
        """Create a Cluster without running brokers; `on_change` is called when a broker has died or is ready again."""
        self.brokers: dict[int, BrokerProcess] = {}
        self._places: dict[int, BrokerPlace] = {}
        self._data_dir = data_dir
        self._security = LocalSecurity(data_dir, lambda: dt.datetime.now(dt.UTC))
        self._secrets: BrokerSecrets | None = None
        self._say = say
        self._on_change = on_change

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers for clients, as `host:port,host:port`."""
        return ",".join(place.address for place in self._places.values())

    @property
    def own_bootstrap(self) -> str:
        """The addresses of the brokers to which `barnabas up` itself connects."""
        places = self._places.values()
        return ",".join(each.address if self._secrets is None else each.replication_address for each in places)

    @property
    def own_tls(self) -> Tls | None:
        """The TLS settings with which `barnabas up` itself connects; None if the brokers are insecure."""
        return None if self._secrets is None else of_operator(self._data_dir.path)

    @property
    def own_security(self) -> Credentials:
        """The credentials with which `barnabas up` itself connects."""
        return Security(self.own_tls)

    def bring_users(self, admin: ClusterAdmin, cluster: Cluster) -> None:
        """Store the SCRAM passwords of users in the brokers; delete passwords and files of users no longer declared.

        Raises ClusterUnreachable if no broker answers, or if the brokers refuse a password.
        """
        self._security.bring_users(admin, cluster)

    async def end_leftovers(self) -> None:
        """End the brokers that a killed `barnabas up` left running, also those that are no longer declared."""
        ends = [
            end_leftover(file.parent, str(file), file.parent.name.replace("-", " "), self._say)
            for file in self._data_dir.path.glob(f"broker-*/{PROPERTIES}")
        ]
        await asyncio.gather(*ends)

    def give_places(self, cluster: Cluster) -> None:
        """Choose the ports of all brokers, even of brokers to be removed; write certificates and client settings.

        A broker keeps its earlier ports if the manifest allows them. Raises PortTaken before anything has changed,
        and SecurityBroken if the CA of an earlier run cannot be used.
        """
        (listener,) = cluster.spec.listeners
        secured = is_secured(cluster)
        running = {number: broker.place for number, broker in self.brokers.items()}
        kept = {**remembered_places(cluster), **running}
        numbers = sorted({*range(cluster.spec.brokers.replicas), *kept})
        chosen = {listener.port + number for number in numbers} if listener.port else set()
        places: dict[int, BrokerPlace] = {}
        for number in numbers:
            old, in_use = kept.get(number), number in running
            declared = listener.port and listener.port + number
            port = _port(declared, old.port if old else 0, chosen, in_use=in_use)
            http_port = _port(0, old.http_port if old else 0, chosen, in_use=in_use)
            replication = _port(0, old.replication_port if old else 0, chosen, in_use=in_use) if secured else 0
            folder = str(self._data_dir.broker_folder(number))
            places[number] = BrokerPlace(
                number, port, http_port, folder, str(self._data_dir.metadata_file), replication
            )
        self._secrets = self._security.prepare(cluster)
        self._places = places
        self._security.write_settings(cluster, self.bootstrap)

    def views(self, cluster: Cluster) -> list[BrokerView]:
        """Return each broker's state, and whether its settings differ from the manifest's."""
        return [self._view(cluster, number) for number in self._places]

    async def start(self, cluster: Cluster, numbers: Iterable[int] | None = None) -> None:
        """Start these brokers, or all if None, and wait until each is ready.

        Raises ChildFailed if a broker ends before it is ready.
        """
        numbers = self._places if numbers is None else numbers
        starts = [self._start_broker(cluster, number) for number in numbers]
        failures = [each for each in await asyncio.gather(*starts, return_exceptions=True) if each is not None]
        for failure in failures:
            raise failure

    def print_users(self, cluster: Cluster) -> None:
        """Print the paths of the files with client settings for each user."""
        for user in users_of(cluster):
            files = self._security.files_of(user)
            kcat = f"for kcat and librdkafka in {files.librdkafka_settings}"
            self._say(f"client settings of {user} are in {files.java_settings} for Kafka's tools, and {kcat}")

    async def restart(self, cluster: Cluster, number: int) -> None:
        """Stop a broker, and start it with the manifest's settings.

        Raises ChildFailed if the broker ends before it is ready.
        """
        broker = self.brokers[number]
        self._say(f"{broker.name} restarts because its settings have changed")
        await self._stop_broker(number)
        await self._start_broker(cluster, number)

    async def remove(self, number: int) -> None:
        """Stop a broker that is no longer declared, and release its ports; its files stay."""
        broker = self.brokers[number]
        await self._stop_broker(number)
        del self._places[number]
        self._say(f"{broker.name} is removed; its files stay in {broker.folder}")

    async def stop(self) -> None:
        """Stop all brokers, and wait until they have ended."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    def status(
        self,
        cluster: Cluster,
        now: str,
        problem: Refusal | None,
        state: ClusterState | None,
        ahead: MovePlan | None,
    ) -> ClusterStatus:
        """Return the status of the Cluster: ready if all brokers are ready and there is no other problem."""
        ready = sum(broker.ready.is_set() for broker in self.brokers.values())
        bad = unserved(state) if state is not None else None
        losses = (*cluster_losses(cluster, now, state, None), *reassignment_conditions(cluster, now, state, ahead))
        first, then = (problem, bad) if is_fault(problem) else (bad, problem)
        conditions = (_condition(cluster, ready, now, first or then), *losses)
        (listener,) = cluster.spec.listeners
        before = cluster.status.conditions if cluster.status else ()
        return ClusterStatus(
            conditions=merge_conditions(before, conditions),
            observed_generation=cluster.metadata.generation,
            listeners=(ListenerStatus(name=listener.name, bootstrap_servers=self.bootstrap),),
            metrics=tuple(place.metrics_url for place in self._places.values()),
            cluster_id=state.cluster_id if state else None,
            metadata_version=reported_metadata_version(cluster, state),
            ready_brokers=ready,
            controller=state.controller_id if state else None,
            under_replicated_partitions=len(state.troubles) if state else None,
            offline_partitions=sum(trouble.offline for trouble in state.troubles) if state else None,
        )

    def _view(self, cluster: Cluster, number: int) -> BrokerView:
        broker = self.brokers.get(number)
        if broker is None:
            return BrokerView(number, is_running=False, is_ready=False, is_changed=False)
        is_changed = self._file(number).read_text(encoding="utf-8") != self._settings(cluster, number)
        is_up = broker.ready.is_set()
        return BrokerView(number, is_running=True, is_ready=is_up, is_changed=is_changed, is_down=not is_up)

    async def _stop_broker(self, number: int) -> None:
        """Stop a broker; it counts as running until it has ended, even if this call is cancelled."""
        await self.brokers[number].stop()
        del self.brokers[number]

    async def _start_broker(self, cluster: Cluster, number: int) -> None:
        place = self._places[number]
        file = self._file(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_secret_file(file, self._settings(cluster, number))
        broker = BrokerProcess(place, file, self._say, self._on_change)
        try:
            seconds = await broker.start()
        except BaseException:
            await broker.stop()
            raise
        self.brokers = dict(sorted({**self.brokers, number: broker}.items()))
        self._say(f"{broker.name} is ready after {seconds:.2f} s: {place.address}, metrics {place.metrics_url}")

    def _settings(self, cluster: Cluster, number: int) -> str:
        return properties_text(server_properties(cluster, self._places[number], self._secrets))

    def _file(self, number: int) -> Path:
        return self._data_dir.broker_folder(number) / PROPERTIES


def remembered_places(cluster: Cluster) -> dict[int, BrokerPlace]:
    """Return the ports that an earlier `barnabas up` wrote into the Cluster's status, by broker id.

    The result is empty if the status has no ports.
    """
    status = cluster.status
    if status is None or len(status.listeners) != 1:
        return {}
    ports = [int(address.rpartition(":")[2]) for address in status.listeners[0].bootstrap_servers.split(",")]
    http_ports = [int(url.rpartition(":")[2].partition("/")[0]) for url in status.metrics]
    pairs = enumerate(zip(ports, http_ports, strict=False))
    return {number: BrokerPlace(number, port, http_port, "", "") for number, (port, http_port) in pairs}


def _port(wanted: int, before: int, chosen: set[int], *, in_use: bool) -> int:
    """Return the declared port `wanted`, or else the broker's previous port `before`, or else a free port.

    `chosen` contains all declared ports and the ports returned so far; this call adds its result. Raises PortTaken if
    another program uses the declared port, or if no port is free.
    """
    is_allowed = before == wanted if wanted else before not in chosen
    keeps = before and is_allowed and (in_use or is_free(before))
    if wanted and not keeps and not is_free(wanted):
        raise PortTaken(
            f"another program uses port {wanted}; choose another port in spec.listeners[0].port, or 0 for any free port"
        )
    port = (before if keeps else wanted) or any_free_port(chosen)
    chosen.add(port)
    return port


def is_free(port: int) -> bool:
    """True if no process listens on this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def any_free_port(chosen: set[int]) -> int:
    """Return a free port that is not among `chosen`. Raises PortTaken if none is found."""
    for port in random.sample(OPEN_PORTS, PORTS_TRIED):
        if port not in chosen and is_free(port):
            return port
    raise PortTaken(f"no port is free among {PORTS_TRIED} random ports from {OPEN_PORTS.start} to {OPEN_PORTS.stop}")


def _condition(cluster: Cluster, ready: int, now: str, problem: Refusal | None) -> Condition:
    wanted = cluster.spec.brokers.replicas
    reason = "BrokersReady" if ready == wanted else "BrokersNotReady"
    why = problem or Refusal(reason, f"{ready} of {wanted} brokers are ready")
    return Condition(
        type=READY,
        status="True" if problem is None and ready == wanted else "False",
        reason=why.reason,
        message=why.message,
        last_transition_time=now,
        observed_generation=cluster.metadata.generation,
    )


POLL_S: Final = 0.1
# If no step is possible for this time, topics are reconciled before the next try.
PATIENCE_S: Final = 5.0


class Rollout:
    """The rollout of a Cluster's brokers.

    `read_state` returns the state of the cluster, or None if no broker answers; `balance` elects the preferred leaders.
    """

    def __init__(
        self,
        brokers: LocalCluster,
        read_state: Callable[[], Awaitable[ClusterState | None]],
        balance: Callable[[], Awaitable[None]],
        say: Say,
    ) -> None:
        self._brokers = brokers
        self._read_state = read_state
        self._balance = balance
        self._say = say
        self._waits_for: str | None = None
        self._unbalanced = False

    async def advance(self, cluster: Cluster, interrupted: Callable[[], bool]) -> Refusal | None:
        """Start, restart and remove brokers until they are as declared; return None, or why the next step has to wait.

        The reason is returned after PATIENCE_S without a step, or at once if `interrupted` returns True. Raises
        ChildFailed if a broker ends before it is ready.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            step = await self._next_step(cluster)
            if step is None:
                return None
            if isinstance(step, Refusal):
                self._print_reason(step)
                if interrupted() or time.monotonic() > deadline:
                    return step
                await asyncio.sleep(POLL_S)
                continue
            self._waits_for = None
            await self._carry_out(cluster, step)
            deadline = time.monotonic() + PATIENCE_S

    async def _next_step(self, cluster: Cluster) -> BrokerStep | Refusal | None:
        """Return the next step, the reason why the next step has to wait, or None if the brokers are as declared.

        The state is read from the brokers only if the next step depends on the state.
        """
        wanted = cluster.spec.brokers.replicas
        step = next_step(wanted, self._brokers.views(cluster), None, unbalanced=self._unbalanced)
        if not isinstance(step, Refusal):
            return step
        return next_step(wanted, self._brokers.views(cluster), await self._read_state(), unbalanced=self._unbalanced)

    def _print_reason(self, why: Refusal) -> None:
        """Print why the rollout waits, unless the previous message had the same reason."""
        if why.reason != self._waits_for:
            self._say(why.message)
        self._waits_for = why.reason

    async def _carry_out(self, cluster: Cluster, step: BrokerStep) -> None:
        match step:
            case StartBrokers(numbers):
                await self._brokers.start(cluster, numbers)
            case RestartBroker(broker_id=number):
                await self._brokers.restart(cluster, number)
                self._unbalanced = balances_leaders(cluster)
            case RemoveBroker(number):
                await self._brokers.remove(number)
            case BalanceLeaders():
                await self._balance()
                self._unbalanced = False
