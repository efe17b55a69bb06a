"""Brokers that are `Node`s on simulated machines: started, killed, paused, cut off, healed and inspected."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final
from uuid import UUID

from barnabas_broker.app.log_tasks import make_cleaner, make_inspector
from barnabas_broker.app.node import Node, make_authorizer
from barnabas_broker.app.wiring import NodeEnvironment, NodeSizes
from barnabas_broker.handlers.channel import user_principal
from barnabas_broker.handlers.table import RAW_HANDLERS, guarded_handler
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition
from simulation.disk import SimulatedDisk
from simulation.helper import SimulatedHelper
from simulation.loop import START_MS, Host, MachineClock, SimulatedLoop
from simulation.network import Connection, Network, Server
from simulation.power import ends_by_log, unkept_promises, wrong_beliefs
from simulation.store import SimulatedStore, StoreState
from simulation.versions import VersionedStore, Versions

RESTART_S: Final = 0.3
ACCEPTED_S: Final = 2.0
"""The time between two looks for losses to accept."""
SKEW_S_MAX: Final = 2.0
DRIFT_MAX: Final = 0.01
LOG_DIRS: Final = ("/logs1", "/logs2")
SETTINGS: Final = {
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": ",".join(LOG_DIRS),
    "metadata.store": "sqlite:///simulated",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.socket.timeout.ms": "2500",
    "replica.fetch.backoff.ms": "300",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.commit.timeout.ms": "2000",
    "log.segment.bytes": "1048576",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "7",
    "auto.create.topics.enable": "false",
}

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(user_principal(f"b{number}") for number in range(1, 10)),
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings: brokers are super users by the names of their machines; clients may do everything without an ACL."""


class SimulatedBroker:
    """One broker over its incarnations. `host` is the present one; None while it is down."""

    def __init__(self, cluster: "SimulatedCluster", broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.disk = SimulatedDisk(lambda: (START_MS + int(cluster.loop.time() * 1000)) * 1_000_000)
        self.boot_id = "boot 1"
        self.clock = cluster.make_clock()
        self.host: Host | None = None
        self.node: Node | None = None
        self.helper: SimulatedHelper | None = None
        self.wanted = True
        """True if it is started again whenever it ends."""
        self._knows_of_lost_pages = False
        self._were_clean: frozenset[str] = frozenset()
        """The log directories that had the mark of a clean shutdown when the last incarnation ended."""

    @property
    def is_serving(self) -> bool:
        """True if it has started, and runs."""
        return self.host is not None and not self.host.is_paused and self.name in self.cluster.network.servers

    def start(self) -> None:
        """Start a new incarnation."""
        if self.host is not None:
            return
        self.cluster.network.without_power.discard(self.name)
        host = self.host = Host(self.name, self.cluster.loop, self.clock)
        self.cluster.loop.spawn(host, self._live(host))

    async def _live(self, host: Host) -> None:
        cluster = self.cluster
        node: Node | None = None
        try:
            config = parse_broker_config({"node.id": str(self.broker_id)} | SETTINGS | cluster.settings)
            environment = NodeEnvironment(
                clock=host,
                timers=host,
                random=Random(cluster.random.getrandbits(64)),
                new_id=cluster.new_id,
                files=self.disk,
                open_files_max=100,
                boot_id=self.boot_id,
                inspector=make_inspector(host, host),
                make_links=lambda image, config: _Links(cluster.network, host),
                sizes=cluster.sizes,
            )
            node = Node(config, self._store(host), environment, lambda reason: self._ends(host))
            await node.load()
            node.handler_environment.authorizer = make_authorizer(node.config, node.image, host)
            self._check_beliefs(node.handler_environment.logs)
            self.node = node
            endpoint = Endpoint("PLAINTEXT", self.name, 9092)
            await node.join(lambda _: (endpoint,), UUID(int=cluster.random.getrandbits(128)))
            await node.host()
            self._start_cleaner(host, node)
            dispatcher = Dispatcher(node.handler_environment, RAW_HANDLERS, guarded_handler)
            cluster.network.servers[self.name] = Server(host, dispatcher)  # type: ignore[arg-type]
        except (StoreUnavailable, LogDirRefused, ApiError) as error:
            cluster.note(f"{self.name} cannot start: {error}")
            self._ends(host)

    def _store(self, host: Host) -> SimulatedStore:
        cluster = self.cluster
        if cluster.versions is None:
            return SimulatedStore(cluster.store, host)
        store = VersionedStore(cluster.store, host, cluster.versions, self.broker_id)
        cluster.note(f"{self.name} starts as the {'newer' if store.is_newer else 'older'} version")
        return store

    def _start_cleaner(self, host: Host, node: Node) -> None:
        if self.cluster.compacts:
            self.helper = helper = SimulatedHelper(self.disk, self.cluster.random)
            logs, replicas = node.handler_environment.logs, node.handler_environment.replicas
            node.start_cleaner(make_cleaner(logs, replicas, helper, host, host, node.current_config))  # type: ignore[arg-type]

    @property
    def is_compacting(self) -> bool:
        """True if a round of compaction is under way."""
        return self.helper is not None and self.helper.is_asked

    def _check_beliefs(self, logs: LogManager) -> None:
        for each in logs.log_dirs:
            if each.was_clean and each.path not in self._were_clean:
                self.cluster.violation(f"{self.name} takes {each.path} for shut down cleanly")
            if each.is_online and each.path in self._marked_clean():
                self.cluster.violation(f"{self.name} started: {each.path} still counts as shut down cleanly")
        for belief in () if self.disk.is_broken else wrong_beliefs(logs):
            self.cluster.violation(f"{self.name} started: {belief}")

    def _marked_clean(self) -> frozenset[str]:
        return frozenset(each for each in LOG_DIRS if self.disk.holds(f"{each}/{checkpoints.CLEAN_SHUTDOWN}"))

    def _ends(self, host: Host, *, silently: bool = False) -> None:
        """Note that the process is gone, for whatever reason."""
        if host.is_dead:
            return
        host.die()
        self.cluster.network.take_down(self.name, silently=silently)
        self.disk.process_ends()
        self._were_clean = self._marked_clean()
        self.host = self.node = self.helper = None
        if self._knows_of_lost_pages:  # The next incarnation cannot know of the loss.
            self._knows_of_lost_pages = False
            self.boot_id += " and another"
        if self.wanted:
            nobody = contextvars.Context()  # The ending process must not run it.
            self.cluster.loop.call_later(RESTART_S, self._start_again, context=nobody)

    def _start_again(self) -> None:
        if self.wanted:
            self.start()

    def kill(self) -> None:
        """Kill it by SIGKILL; it stays down until `start`."""
        self.wanted = False
        if self.host is not None:
            self._ends(self.host)

    @property
    def has_lost_its_disk(self) -> bool:
        """True if the running process knows that its disk does not work."""
        return self.node is not None and not any(each.is_online for each in self.node.handler_environment.logs.log_dirs)

    def lose_pages(self) -> None:
        """Lose some of what was not synced; the process, which saw the disk fail, runs on."""
        self._knows_of_lost_pages = True
        self._lose_what_is_not_synced()

    def lose_power(self) -> None:
        """Cut the power of the machine: what was not synced may be lost, and nobody is informed."""
        self.wanted = False
        if self.host is not None:
            self._ends(self.host, silently=True)
        self.disk.process_ends()
        self._lose_what_is_not_synced()
        self.boot_id = f"boot {self.cluster.random.getrandbits(32)}"
        if not self.cluster.is_one_machine:
            self.clock.booted_s = self.cluster.loop.time()

    def _lose_what_is_not_synced(self) -> None:
        ends = ends_by_log(self.disk, LOG_DIRS)
        self.disk.lose_power(self.cluster.random)
        for promise in unkept_promises(self.disk, LOG_DIRS, ends):
            self.cluster.violation(f"{self.name} lost power: {promise}")

    def stop(self) -> None:
        """Stop it by SIGTERM."""
        self.wanted = False
        host, node = self.host, self.node
        if host is None:
            return
        if node is None or not self.is_serving:
            self._ends(host)
        else:
            self.cluster.loop.spawn(host, self._stop(host, node))

    async def _stop(self, host: Host, node: Node) -> None:
        await node.hand_over()
        self.cluster.network.take_down(self.name)
        with suppress(StoreUnavailable):
            await node.stop()
        self._ends(host)

    def logs_on_disk(self) -> Iterator[tuple[str, TopicPartition]]:
        """Yield the directories of logs, except those set aside or on their way; one whose making failed is empty."""
        for log_dir in LOG_DIRS:
            for entry in self.disk.scan(log_dir):
                found = checkpoints.parse_partition_dir(entry.name) if entry.is_dir else None
                if found is not None and not found.state and self.disk.scan(f"{log_dir}/{entry.name}"):
                    yield f"{log_dir}/{entry.name}", found.topic_partition

    def partitions(self) -> Iterator[Partition]:
        """Yield the partitions that are here now."""
        if self.node is not None and self.is_serving:
            yield from self.node.handler_environment.replicas.lookup.partitions()


class _Links:
    """The `replication.links.Links` of one machine."""

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self._host = host

    def open(self, broker_id: int, on_closed: object) -> Connection:
        return self._network.connect(self._host, f"b{broker_id}", on_closed)  # type: ignore[arg-type]

    async def refuses(self, broker_id: int) -> bool:
        return await self._network.refuses(self._host.name, f"b{broker_id}")


class SimulatedCluster:
    """A cluster of simulated brokers. `settings` go before the usual ones."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        brokers: int,
        settings: dict[str, str],
        violation: Callable[[str], object],
        new_id: Callable[[], str],
        sizes: NodeSizes,
        *,
        is_one_machine: bool,
        compacts: bool,
        versions: Versions | None,
    ) -> None:
        self.loop = loop
        self.violation = violation
        """The function that is called with what no correct broker does."""
        self.new_id = new_id
        self.sizes = sizes
        self.random = random
        self.settings = settings
        self.network = Network(loop, random)
        self.is_one_machine = is_one_machine
        """True if all brokers have one clock, and a store that sees a process end."""
        self.compacts = compacts
        """True if the brokers compact."""
        self.versions = versions
        """The versions of brokers, if there are two."""
        self._clock = MachineClock(loop)
        self.store = StoreState(random, is_one_machine=is_one_machine)
        self.brokers = [SimulatedBroker(self, number) for number in range(1, brokers + 1)]
        self.events: list[str] = []

    def make_clock(self) -> MachineClock:
        """Return the clock of the machine, or a new one for another machine."""
        if self.is_one_machine:
            return self._clock
        clock, random = MachineClock(self.loop), self.random
        clock.ahead_s = random.uniform(-SKEW_S_MAX, SKEW_S_MAX)
        clock.drift = random.uniform(-DRIFT_MAX, DRIFT_MAX)
        clock.booted_s = -random.uniform(0, 1000)
        return clock

    def note(self, event: str) -> None:
        """Note an event, for people who look into a failure."""
        self.events.append(f"{self.loop.time():8.3f} {event}")

    def start(self) -> None:
        """Start all brokers."""
        for broker in self.brokers:
            broker.start()

    def start_anew(self) -> None:
        """End all processes, and start another one on each machine."""
        self.note("all start again")
        for broker in self.brokers:
            broker.kill()
            broker.wanted = True
        self.start()

    def lose_all_power(self) -> None:
        """Cut the power of all machines at once."""
        self.note("all lose power")
        for broker in self.brokers:
            broker.disk.is_broken = False
            broker.lose_power()

    def heal(self) -> None:
        """Repair everything that is broken, cut, paused or down."""
        self.repair()
        for broker in self.brokers:
            broker.wanted = True
            broker.start()

    def repair(self) -> None:
        """Repair everything that is broken, cut or paused; brokers that are down stay down."""
        self.network.heal()
        self.store.is_away = False
        self.store.failure_share = 0.0
        self.store.late_s.clear()
        for broker in self.brokers:
            broker.disk.is_full = broker.disk.is_broken = False
            broker.disk.sync_error = None
            if broker.host is not None and broker.host.is_paused:
                broker.host.resume()

    def states(self) -> dict[tuple[str, int], PartitionState]:
        """Return every partition, as the image of the broker that has seen most has it."""
        images = [each.node.image for each in self.brokers if each.node is not None]
        if not images:
            return {}
        newest = max(images, key=lambda image: image.revision)
        return {
            (name, number): state
            for name, topic in newest.topics.items()
            for number, state in enumerate(topic.partitions)
        }

    def why_unhealthy(self) -> str | None:
        """Return None if all brokers serve, and every partition has its leader, its replicas in sync and committed."""
        if not all(broker.is_serving for broker in self.brokers):
            return "not all brokers serve"
        states = self.states()
        if not states:
            return "there are no topics"
        replicas = {
            (broker.broker_id, *partition.topic_partition): partition
            for broker in self.brokers
            for partition in broker.partitions()
        }
        for (topic, number), state in states.items():
            if set(state.isr) != set(state.replicas) or state.leader not in state.isr or state.adding_replicas:
                return f"{topic}-{number} is {state}"
            for broker_id in state.replicas:
                here = replicas.get((broker_id, topic, number))
                if here is None or here.failure is not None or here.leader_epoch != state.leader_epoch:
                    return f"{topic}-{number} is not served by {broker_id}: {here and here.failure}"
                leader = replicas[state.leader, topic, number]
                log, led = here.log, leader.log
                if log.log_end_offset != led.log_end_offset or log.high_watermark != led.high_watermark:
                    return f"{topic}-{number} on {broker_id} ends at {log.log_end_offset}, {log.high_watermark}"
                if led.high_watermark != led.log_end_offset:
                    return f"{topic}-{number}: high watermark {led.high_watermark} of {led.log_end_offset}"
        return None

    async def until_healthy(
        self, seconds_max: float, accept_losses: Callable[[], Awaitable[None]] | None = None
    ) -> str | None:
        """Wait until it is healthy; after so long return why not.

        Losses are accepted once all others have had their time to heal.
        """
        end_s = self.loop.time() + seconds_max
        accept_s = self.loop.time() + seconds_max / 4
        while (why := self.why_unhealthy()) is not None and self.loop.time() < end_s:
            await asyncio.sleep(0.1)
            if accept_losses is not None and self.loop.time() >= accept_s:
                accept_s = self.loop.time() + ACCEPTED_S
                await accept_losses()
        return why
