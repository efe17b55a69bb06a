"""The parts of a broker that use the metadata store: image, leases, controller and changes of ISRs, without any log."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from barnabas_broker.app.loop_turns import LoopTimers, SystemClock
from barnabas_broker.metadata.controller.controller import Controller
from barnabas_broker.metadata.controller.decisions.fencing import UNKNOWN_BROKER_EPOCH, IsrChange
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.membership import Membership, ensure_cluster_id
from barnabas_broker.metadata.model import SUPPORTED, BrokerRegistration, PartitionState, TopicDocument
from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
from barnabas_broker.metadata.store.metadata_store import KubernetesCluster
from barnabas_broker.replication.leader_replica import IsrChanges
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition
from barnabas_kube.discovery import find_access

HEARTBEAT_MS: Final = 2_000
SESSION_MS: Final = 9_000
CATCHES_UP_WITHIN_S: Final = 1.0
"""A follower that has restarted is in sync with all its partitions within this time: with some at each fetch."""
FETCHES: Final = 3


class _Led:
    """A partition that a speaker leads: it proposes all live replicas."""

    def __init__(self, speaker: "Speaker", which: TopicPartition, *, again: bool = False) -> None:
        self._speaker = speaker
        self._again = again
        self.topic_partition = which

    @property
    def isr_size(self) -> int:
        topic = self._speaker.image.topics.get(self.topic_partition.topic)
        return 0 if topic is None else len(topic.partitions[self.topic_partition.partition].isr)

    @property
    def isr_size_min(self) -> int:
        return 1

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        image = self._speaker.image
        topic = image.topics.get(self.topic_partition.topic)
        state = None if topic is None else topic.partitions[self.topic_partition.partition]
        if topic is None or state is None or state.leader != self._speaker.broker_id:
            return None
        if _has_all(state, image.live) and not self._again:
            return None
        members = [each for each in state.replicas if each in image.live or each in state.isr]
        epochs = {each: image.registered_epoch(each) or UNKNOWN_BROKER_EPOCH for each in members}
        return IsrChange(self.topic_partition, topic.topic_id, state.leader_epoch, state.partition_epoch, epochs)

    def isr_change_refused(self, change: IsrChange) -> None:
        self._speaker.look_again(self.topic_partition)


async def _refuses_nothing(broker_id: int) -> bool:  # It has no port.
    return False


class Speaker:
    """One incarnation of a broker."""

    def __init__(self, broker_id: int, cluster: str, kubeconfig: Path) -> None:
        clock, loop = SystemClock(), asyncio.get_running_loop()
        properties = {"broker.heartbeat.interval.ms": str(HEARTBEAT_MS), "broker.session.timeout.ms": str(SESSION_MS)}
        config: BrokerConfig = parse_broker_config(properties)
        timers = LoopTimers(loop)
        access = find_access({"KUBECONFIG": str(kubeconfig)})
        self.broker_id = broker_id
        self.store = KubernetesStore(KubernetesCluster("default", cluster), access, clock, f"{cluster}-{broker_id}")
        self.image = MetadataImage()
        features = {name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()}
        registration = BrokerRegistration(broker_id, uuid4(), (), boot_id="one", features=features)
        self.membership = Membership(
            self.store, self.image, registration, HEARTBEAT_MS, SESSION_MS, clock, asyncio.sleep, was_clean=True
        )
        self.writer = MetadataWriter(
            broker_id, self.store, self.image, lambda: config, random.Random(broker_id), clock.now_ms
        )
        self.controller = Controller(
            broker_id,
            self.store,
            self.image,
            self.membership,
            self.writer.partitions,
            lambda: config,
            clock,
            timers,
            _refuses_nothing,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._isr_changes = IsrChanges(self.writer.change_isr, timers, asyncio.sleep, self._spawn)
        self._catching_up: set[TopicPartition] = set()
        self._random = random.Random(broker_id)
        self._fetches: dict[int, list[TopicPartition]] = {}

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        """Start, and wait until the controller has registered the broker."""
        await ensure_cluster_id(self.store, random.Random())
        await image_feed.load(self.image, self.store)
        await self.membership.join()
        feed = image_feed.ImageFeed(self.image, self.store, asyncio.sleep)
        for work in (feed.follow(), self.membership.keep(), self.controller.run()):
            self._spawn(work)
        self.image.subscribe(self._image_changed)
        await self.membership.admitted()

    async def stop(self) -> None:
        """Do a controlled shutdown."""
        with suppress(ApiError):  # Other brokers lead after that.
            await self.writer.hand_over(self.broker_id)
        await self.membership.leave()
        await self.kill()

    async def kill(self) -> None:
        """Stop without a report to the controller."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    def _image_changed(self, change: ImageChange) -> None:
        topics = self.image.topics.values() if change.brokers else (*change.created, *change.changed)
        for topic in topics:
            for which in self._out_of_sync(topic):
                self.look_again(which)

    def look_again(self, which: TopicPartition) -> None:
        """Propose the followers again soon, when they will have caught up."""
        if which in self._catching_up:
            return
        self._catching_up.add(which)
        loop, share = asyncio.get_running_loop(), CATCHES_UP_WITHIN_S / FETCHES
        at = self._random.randint(1, FETCHES) + int(loop.time() / share)
        if at not in self._fetches:
            loop.call_at(at * share, self._fetched, at)
        self._fetches.setdefault(at, []).append(which)

    def _fetched(self, at: int) -> None:
        for which in self._fetches.pop(at):
            self._propose(which)

    def propose_again(self, topic: str, partition: int) -> None:
        """Propose the current ISR, so that it is written again."""
        self._isr_changes.propose(_Led(self, TopicPartition(topic, partition), again=True))

    def _propose(self, which: TopicPartition) -> None:
        self._catching_up.discard(which)
        topic = self.image.topics.get(which.topic)
        state = None if topic is None else topic.partitions[which.partition]
        if state is not None and state.leader == self.broker_id and not _has_all(state, self.image.live):
            self._isr_changes.propose(_Led(self, which))

    def _out_of_sync(self, topic: TopicDocument) -> Iterator[TopicPartition]:
        for number, state in enumerate(topic.partitions):
            if state.leader == self.broker_id and not _has_all(state, self.image.live):
                yield TopicPartition(topic.name, number)

    async def until_in_sync(self, live: int) -> None:
        """Wait until all replicas on this many brokers are in the ISRs of all partitions."""

        def is_so() -> bool:
            image = self.image
            return len(image.live) == live and all(
                state.leader in image.live and _has_all(state, image.live)
                for topic in image.topics.values()
                for state in topic.partitions
            )

        while not is_so():  # A check at each change would cost too much.
            await asyncio.sleep(0.05)


def _has_all(state: PartitionState, live: frozenset[int]) -> bool:
    return live.issuperset(state.isr) and all(each in state.isr for each in state.replicas if each in live)


NUMBERS: Final = itertools.count()


@asynccontextmanager
async def speakers(kubeconfig: Path, count: int = 3) -> AsyncIterator[Callable[[int], Speaker]]:
    """Yield a function that returns the current incarnation of a broker of a new cluster, or makes the next one."""
    cluster = f"bench-{next(NUMBERS)}"
    lives: dict[int, Speaker] = {}

    def life(number: int) -> Speaker:
        if number not in lives:
            lives[number] = Speaker(number, cluster, kubeconfig)
        return lives[number]

    try:
        for number in range(count):
            await life(number).start()
        yield lambda number: life(number) if number >= 0 else lives.pop(~number)
    finally:
        for each in lives.values():
            await each.kill()
