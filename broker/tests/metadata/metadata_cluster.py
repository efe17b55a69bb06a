"""The metadata layers of several brokers on one SQLite store, with a clock and heartbeats that a test controls."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.controller import Controller
from barnabas_broker.metadata.controller.deletions import Restorations, Transitions
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import encode, topic_key
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import HeldLog, LogEnds
from barnabas_broker.metadata.membership.membership import Membership
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Write
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.clock import monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock
from harness.manual_timers import ManualTimers

HEARTBEAT_MS, SESSION_MS = 1000, 3000
TIMES = {"broker.heartbeat.interval.ms": str(HEARTBEAT_MS), "broker.session.timeout.ms": str(SESSION_MS)}


class Node:
    """One incarnation of a broker: its store, image, membership and controller."""

    def __init__(
        self,
        store: SqliteStore,
        registration: BrokerRegistration,
        clock: ManualClock,
        config: BrokerConfig,
        refuses: Callable[[int], Awaitable[bool]],
    ) -> None:
        self.broker_id = registration.broker_id
        self.store = store
        self.clock = clock
        self.timers = ManualTimers(clock)
        self.image = MetadataImage()
        self.beats: asyncio.Queue[None] = asyncio.Queue()
        self.held: list[HeldLog] = []
        self.log_ends = LogEnds(self.broker_id, store, self.image, lambda: self.held, lambda: asyncio.sleep(0))
        tell, times = self.log_ends.begin_incarnation, (HEARTBEAT_MS, SESSION_MS)
        self.membership = Membership(store, self.image, registration, *times, clock, self._sleep, report_log_ends=tell)
        self.writer = MetadataWriter(
            self.broker_id, store, self.image, lambda: config, random.Random(self.broker_id), clock.now_ms
        )
        self.restorations = Restorations(
            self.image,
            Transitions(store, self.image),
            lambda: self.membership.is_controller,
            lambda _: asyncio.sleep(0.01),
        )
        self.controller = Controller(
            self.broker_id,
            store,
            self.image,
            self.membership,
            self.writer.partitions,
            lambda: config,
            clock,
            self.timers,
            refuses,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def _sleep(self, seconds: float) -> None:
        await self.beats.get()

    async def join(self) -> None:
        """Join as a starting broker does; it is not admitted yet."""
        await image_feed.load(self.image, self.store)
        await self.membership.join()
        works = (self._follow(), self.membership.keep(), self.controller.run(), self.restorations.run())
        self._tasks = [asyncio.create_task(work) for work in works]

    def _follow(self) -> Coroutine[object, object, None]:
        return image_feed.ImageFeed(self.image, self.store, asyncio.sleep).follow()

    async def start(self) -> None:
        """Start as a broker does, and wait until it is admitted."""
        await self.join()
        async with asyncio.timeout(PATIENCE_S):
            await self.membership.admitted()

    def beat(self) -> None:
        """Make its heartbeat due."""
        self.beats.put_nowait(None)
        self.run_timers()

    def run_timers(self) -> None:
        """Run all waiting timers as if they were due."""
        for timer in self.timers.waiting:
            timer.run()

    async def beaten(self) -> None:
        """Make its heartbeat due, and wait until its leases are renewed and the controller has run."""
        before, passes = self.controller.progress(), self.membership.passes
        self.beat()
        await self.lease_renewed()
        async with asyncio.timeout(PATIENCE_S):
            while self.controller.progress() == before or self.membership.passes == passes:
                await asyncio.sleep(0.001)

    async def lease_renewed(self) -> None:
        """Wait until its lease lasts a whole session from now."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                leases = {lease.name: lease for lease in await self.store.leases(f"broker-{self.broker_id}")}
                if leases[f"broker-{self.broker_id}"].expires_at_ms == monotonic_ms(self.clock) + SESSION_MS:
                    return

    def lose_watch(self) -> None:
        """End its watch of the metadata store, so that its image stays as it is."""
        self._tasks[0].cancel()

    def watch_again(self) -> None:
        """Begin a watch after `lose_watch`, which brings what the image has missed."""
        self._tasks[0] = asyncio.create_task(self._follow())

    async def end(self) -> None:
        """End like a killed process: it reports nothing, and its leases are not renewed."""
        await self.hang()
        await self.store.close()

    async def hang(self) -> None:
        """End, but unseen by the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def epoch(self) -> int:
        """The broker epoch of this incarnation."""
        return self.image.brokers[self.broker_id].broker_epoch

    def state(self, topic: str, number: int = 0) -> PartitionState:
        """Return one partition from the image of this broker."""
        return self.image.topics[topic].partitions[number]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until its image satisfies the condition."""
        async with asyncio.timeout(PATIENCE_S):
            await self.image.until(condition)


class ClusterOfNodes:
    """A cluster of brokers that start and end; `nodes` are the running ones."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self.clock = ManualClock()
        self.config = parse_broker_config(TIMES | {name.replace("_", "."): value for name, value in settings.items()})
        self.nodes: dict[int, Node] = {}
        self.refusing: set[int] = set()
        """The ids of brokers whose machines refuse connections."""
        self._random = random.Random(7)

    async def node(self, broker_id: int, *, boot_id: str = "one boot", dirs: Iterable[int] = (1,)) -> Node:
        """Return the next incarnation of a broker, not started."""
        store = await SqliteStore.open(self.path, self.clock)
        registration = BrokerRegistration(
            broker_id,
            UUID(int=self._random.getrandbits(128)),
            (),
            directory_ids=tuple(UUID(int=100 * broker_id + number) for number in dirs),
            boot_id=boot_id,
        )
        self.nodes[broker_id] = Node(store, registration, self.clock, self.config, self._refuses)
        return self.nodes[broker_id]

    async def _refuses(self, broker_id: int) -> bool:
        return broker_id in self.refusing

    async def start(self, *broker_ids: int) -> list[Node]:
        """Start brokers one after the other: the first is the controller."""
        nodes = [await self.node(broker_id) for broker_id in broker_ids]
        for node in nodes:
            await node.start()
        return nodes

    async def start_together(self, *nodes: Node) -> None:
        """Start brokers that were all down, and wait until they are admitted."""
        for node in nodes:
            await node.join()
        async with asyncio.timeout(PATIENCE_S):
            for node in nodes:
                await node.membership.admitted()

    async def kill(self, broker_id: int) -> None:
        """Kill the process of a broker."""
        await self.nodes.pop(broker_id).end()

    async def topics(self, *topics: TopicDocument) -> None:
        """Write topics as they are, and wait until all brokers know them."""
        (some, *_) = self.nodes.values()
        newest = [_newer_than(some.image.topics.get(topic.name), topic) for topic in topics]
        results = await some.store.write([Write(topic_key(topic.name), encode(topic)) for topic in newest])
        for node in self.nodes.values():
            async with asyncio.timeout(PATIENCE_S):
                await node.image.reached(max(result for result in results if isinstance(result, int)))

    async def close(self) -> None:
        """Kill all brokers."""
        for broker_id in list(self.nodes):
            await self.kill(broker_id)


@asynccontextmanager
async def cluster_at(path: Path, **settings: str) -> AsyncIterator[ClusterOfNodes]:
    """Yield a cluster without brokers."""
    cluster = ClusterOfNodes(path, **settings)
    try:
        yield cluster
    finally:
        await cluster.close()


def _newer_than(known: TopicDocument | None, topic: TopicDocument) -> TopicDocument:
    """Return `topic` with partition epochs above those of `known`, because no change lowers one."""
    epoch = max((1 + state.partition_epoch for state in known.partitions), default=0) if known is not None else 0
    partitions = [
        msgspec.structs.replace(each, partition_epoch=each.partition_epoch + epoch) for each in topic.partitions
    ]
    return msgspec.structs.replace(topic, partitions=tuple(partitions))


def a_topic(name: str, *partitions: PartitionState, **configs: str) -> TopicDocument:
    """Return a topic with these partitions, and configs with `_` for `.`."""
    topic = TopicDocument(name, UUID(int=1 + sum(map(ord, name))), partitions)
    return msgspec.structs.replace(topic, configs={key.replace("_", "."): value for key, value in configs.items()})


def led(*replicas: int, isr: Iterable[int] | None = None, leader: int | None = None, epoch: int = 5) -> PartitionState:
    """Return a partition; by default its first replica leads, and all replicas are in sync."""
    return PartitionState(
        replicas, replicas[0] if leader is None else leader, epoch, replicas if isr is None else tuple(isr)
    )
