"""Runs one seed: a cluster, clients, faults by chance, a healing, and the checks of it all."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.app.wiring import NodeSizes
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import PARTITIONS_MAX
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition
from simulation import group_members, log_dir_moves
from simulation.broker_changes import BrokerChanges, alters_brokers
from simulation.clients import Client, Committer, Failed, Producer, Reader
from simulation.cluster import SimulatedCluster
from simulation.compaction import CLEANER_SETTINGS, WILD, Compaction, gaps_are_never_forgotten
from simulation.consumer_group import ConsumerGroup, Protocols
from simulation.epoch_members import EPOCH_SETTINGS
from simulation.faults import Faults
from simulation.history import History
from simulation.log_dir_moves import LogDirMoves
from simulation.loop import Deadlock, SimulatedLoop
from simulation.losses import Losses
from simulation.power import SEGMENT_BYTES_MAX
from simulation.topic_changes import TopicChanges
from simulation.unhandled import unhandled_exceptions_fail
from simulation.versions import Upgrade, Versions, has_two_versions
from simulation.watch import Watch

FAULTY_S = 14.0
HEALING_S_MAX = 60.0
HEALING_CHECKS: Final = 60
FETCHED_S: Final = 0.1
TOPIC = "t"
SETTINGS: Final = group_members.SETTINGS | log_dir_moves.SETTINGS | CLEANER_SETTINGS
TOPIC_CHANGES_SHARE = 0.5
"""The share of the seeds in which topics are made and deleted besides."""
LOG_DIR_MOVES_SHARE = 0.5
COMPACTION_SHARE = 0.5
CUT_EACH = 10
"""The distance of seeds in which all machines lose power at last; no group reads then.

Lost records must be reported.
"""


ACKNOWLEDGED_MIN: Final = 5
"""The acknowledged records of each partition, on average, below which a run proves nothing; 15 or more are usual."""


class Outcome(NamedTuple):
    """The outcome of a seed."""

    seed: int
    violations: list[str]
    events: list[str]
    acknowledged: int
    seconds: float


def run_with_epochs(seed: int) -> Outcome:
    """Run one seed whose group has the consumer protocol (KIP-848)."""
    return run(seed, Protocols.CONSUMER)


def run_migrations(seed: int) -> Outcome:
    """Run one seed whose group changes between the classic protocol and the consumer protocol."""
    return run(seed, Protocols.MIXED)


def run(seed: int, protocols: Protocols = Protocols.CLASSIC) -> Outcome:
    """Run one seed; its story is always the same."""
    random = Random(seed)
    loop = SimulatedLoop(Random(seed))
    asyncio.set_event_loop(loop)
    compacts = Random(f"compaction {seed}").random() < COMPACTION_SHARE
    simulation = Simulation(
        loop,
        random,
        Random(seed),
        small_sizes(seed),
        cuts_all_power=seed % CUT_EACH == CUT_EACH - 1,
        compacts=compacts,
        versions=Random(f"versions {seed}") if has_two_versions(seed) and protocols is Protocols.CLASSIC else None,
    )
    if protocols is not Protocols.CLASSIC:
        simulation.use_epochs(protocols)
    if alters_brokers(seed):
        simulation.alter_brokers(Random(f"broker settings {seed}"))
    try:
        with (
            unhandled_exceptions_fail(loop, simulation.history),
            garbage_at_the_end(),
            ending(loop),
            gaps_are_never_forgotten(simulation.history),
        ):
            loop.run_until_complete(simulation.run())
    except Deadlock:
        simulation.history.violation("everybody waits for somebody")
    finally:
        asyncio.set_event_loop(None)
    return Outcome(
        seed,
        simulation.history.violations,
        simulation.cluster.events,
        simulation.history.acknowledged_count,
        loop.time(),
    )


def small_sizes(seed: int) -> NodeSizes:
    """Return sizes with which, in most seeds, small topics have several documents and small logs many segments."""
    return NodeSizes(
        document_partitions_max=(1, 2, PARTITIONS_MAX)[seed % 3],
        segment_bytes_max=Random(seed).choice(SEGMENT_BYTES_MAX),
        move_steps=log_dir_moves.STEPS,
    )


@contextmanager
def garbage_at_the_end() -> Iterator[None]:
    """Collect a seed's garbage once, at the end, which also shows exceptions that no task was asked for."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@contextmanager
def ending(loop: SimulatedLoop) -> Iterator[None]:
    """End the loop, and leave nothing for the garbage collector to end."""
    try:
        yield
    finally:
        loop.end()


class Simulation:
    """A simulation with a cluster of three brokers, or now and then of more."""

    _broker_changes: BrokerChanges | None = None

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        ids: Random,
        sizes: NodeSizes,
        *,
        cuts_all_power: bool,
        compacts: bool,
        versions: Random | None,
    ) -> None:
        self._loop = loop
        self._random = random
        self._cuts_all_power = cuts_all_power
        self.history = History()
        self.partitions = random.randint(1, 3)
        brokers = random.choice([3, 3, 3, 4, 5])
        fetch_bytes = random.choice(["1048576", "400"])
        self.cluster = SimulatedCluster(
            loop,
            random,
            brokers,
            SETTINGS | EPOCH_SETTINGS | {"replica.fetch.max.bytes": fetch_bytes},
            self.history.violation,
            lambda: str(UUID(int=ids.getrandbits(128))),
            sizes,
            is_one_machine=random.random() < 0.5,
            compacts=compacts,
            versions=None if versions is None else Versions(versions, brokers),
        )
        self._topics = (
            TopicChanges(self.cluster, self.history, self._client, Random(random.getrandbits(64)))
            if random.random() < TOPIC_CHANGES_SHARE
            else None
        )
        self._moves = (
            LogDirMoves(self.cluster, self.history, self._client) if random.random() < LOG_DIR_MOVES_SHARE else None
        )
        self._compaction = (
            Compaction(self.cluster, self.history, self._client, Random(random.getrandbits(64))) if compacts else None
        )
        self._watch = Watch(self.cluster, self.history)
        self._losses = Losses(self.cluster, self._is_lost)
        self._faults = Faults(self.cluster, random, TOPIC, stranded=WILD if compacts else None)
        self._group = ConsumerGroup(self.cluster, self.history, self._client, TOPIC, self.partitions)

    def use_epochs(self, protocols: Protocols) -> None:
        """Let members of the group use the consumer protocol, with member epochs."""
        self._group = ConsumerGroup(self.cluster, self.history, self._client, TOPIC, self.partitions, protocols)

    def alter_brokers(self, random: Random) -> None:
        """Alter settings of brokers, too. Nothing else uses `random`."""
        self._broker_changes = BrokerChanges(self.cluster, self.history, TOPIC, random)

    async def run(self) -> None:
        """Run everything."""
        self.cluster.start()
        await self._create_topic()
        why = await self.cluster.until_healthy(HEALING_S_MAX)
        if why is not None:
            self.history.violation(f"it never was healthy: {why}")
            return
        tasks = [self._loop.spawn(client.host, work) for client, work in self._clients()]
        if self._moves is not None:
            tasks.append(self._loop.create_task(self._moves.run()))
        if not self._cuts_all_power:
            self._group.start()
        tasks += self._administer()
        if self._topics is not None:
            self._topics.start()
        if self._compaction is not None:
            self._compaction.start()
        watching = self._loop.create_task(self._watch.run())
        await self._faults.run(FAULTY_S)
        if self._cuts_all_power:
            self.cluster.lose_all_power()
        self.cluster.note("all is mended")
        self.cluster.heal()
        await asyncio.sleep(2)
        await self._until_enough_is_acknowledged()
        for task in tasks:
            task.cancel()
        if self._topics is not None:
            self._topics.stop()
        if self._compaction is not None:
            self._compaction.stop()
        if not self._cuts_all_power:
            accepting = self._loop.create_task(self._losses.accept_in_time())
            await self._group.settle()
            accepting.cancel()
        why = await self.cluster.until_healthy(HEALING_S_MAX, self._losses.accept)
        watching.cancel()
        if why is not None:
            self.history.violation(f"it does not heal: {why}")
            return
        await self._check_at_the_end()

    def _administer(self) -> Iterator[asyncio.Task[None]]:
        """Change what all brokers go by."""
        if self.cluster.versions is not None:
            administrator = self._client("u")
            yield self._loop.spawn(administrator.host, Upgrade(administrator).run())
        if self._broker_changes is not None:
            yield self._broker_changes.start()

    async def _until_enough_is_acknowledged(self) -> None:
        """Wait until enough is acknowledged, but not for ever.

        Clients need more time if no broker could start for most of it, and cannot write while losses wait to
        be accepted.
        """
        accepting = self._loop.create_task(self._losses.accept_in_time())
        for _ in range(HEALING_CHECKS):
            if self.history.acknowledged_count >= ACKNOWLEDGED_MIN * self.partitions:
                break
            await asyncio.sleep(HEALING_S_MAX / HEALING_CHECKS)
        accepting.cancel()

    def _is_lost(self, lost: TopicPartition) -> None:
        self.history.told_lost(*lost)
        self._watch.forget(lost)

    async def _create_topic(self) -> None:
        while True:
            for broker in self.cluster.brokers:
                if broker.is_serving and broker.node is not None:
                    made = await self._loop.spawn(
                        broker.host,
                        broker.node.handler_environment.metadata_writer.create_topics(
                            [NewTopic(TOPIC, self.partitions, 3)]
                        ),
                    )
                    if not isinstance(made[TOPIC], ApiError):
                        return
            await asyncio.sleep(0.2)

    def _client(self, name: str) -> Client:
        brokers = [broker.name for broker in self.cluster.brokers]
        return Client(self.cluster.network, name, Random(self._random.getrandbits(64)), brokers)

    def _clients(self) -> list[tuple[Client, object]]:
        self._committers = []
        clients: list[tuple[Client, object]] = []
        for partition in range(self.partitions):
            for number in range(2):
                client = self._client(f"p{number}")
                producer = Producer(client, TOPIC, partition, self.history, idempotent=number == 0)
                clients.append((client, producer.run()))
            client = self._client("r")
            reader = Reader(client, TOPIC, partition, self.history)
            clients.append((client, reader.run()))
        if not self._cuts_all_power:
            client = self._client("g")
            committer = Committer(client, "group", self.history)
            self._committers.append(committer)
            clients.append((client, committer.run()))
        return clients

    async def _check_at_the_end(self) -> None:
        for partition in range(self.partitions):
            log = History()
            client = self._client("end")
            reader = Reader(client, TOPIC, partition, log)
            await self._loop.spawn(client.host, _read_all(reader))
            self.history.check_log(TOPIC, partition, log._values.get((TOPIC, partition), {}))
        if not self._cuts_all_power:
            await self._group.check_at_the_end()
        if self._moves is not None:
            await self._moves.settle()
        if self._topics is not None:
            await self._check_topics(self._topics)
        if self._broker_changes is not None:
            await self._check_broker_settings(self._broker_changes)
        if self._compaction is not None:
            self._compaction.check_at_the_end()
        for _ in range(HEALING_CHECKS):
            if self._watch.replicas_end_alike():
                break
            await asyncio.sleep(FETCHED_S)
        self._watch.check_replicas()
        if self.history.acknowledged_count < ACKNOWLEDGED_MIN * self.partitions:
            self.history.violation(f"too little was acknowledged: {self.history.acknowledged_count} records")
        for committer in self._committers:
            await self._loop.spawn(committer._client.host, _look(committer))

    async def _check_broker_settings(self, changes: BrokerChanges) -> None:
        """Check the settings of brokers now, and again after a start."""
        await changes.check_at_the_end()
        self.cluster.start_anew()
        why = await self.cluster.until_healthy(HEALING_S_MAX)
        if why is not None:
            self.history.violation(f"it does not become healthy after all have started again: {why}")
        await changes.check_at_the_end()

    async def _check_topics(self, topics: TopicChanges) -> None:
        await topics.check_writable()
        why = await self.cluster.until_healthy(HEALING_S_MAX)
        if why is not None:
            self.history.violation(f"it does not become healthy again: {why}")
        topics.check_at_the_end()


async def _read_all(reader: Reader) -> None:
    failures = 0
    while failures < 100:
        try:
            if await reader.poll() == 0:
                return
        except Failed:
            failures += 1
            await asyncio.sleep(0.1)


async def _look(committer: Committer) -> None:
    for _ in range(100):
        try:
            committer._coordinator = None
            await committer.look()
            return
        except Failed:
            await asyncio.sleep(0.1)
    committer._history.violation("the group is not served after all was mended")
