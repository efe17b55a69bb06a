"""The delivery of share groups on this broker: the share partitions that it leads, and the sessions of members."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Final

import msgspec

from barnabas_broker.coordinators.share_delivery.led_partition import (
    DeliveryCounts,
    LedEnvironment,
    LedPartition,
    Life,
)
from barnabas_broker.coordinators.share_delivery.reading import Batches, read_batches, readable_end
from barnabas_broker.coordinators.share_delivery.sessions import ShareSession, ShareSessions
from barnabas_broker.coordinators.share_delivery.share_partition import Acquired, Wish
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.logs.offset_lookup import offset_for_timestamp
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.group_configs import ShareGroupConfig
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import FairTurn, in_turns
from barnabas_core.topic_partition import TopicIdPartition

RELEASED_PARTITIONS: Final = 100
"""The share partitions of a session that one turn of the event loop releases."""


class DeliveryEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the delivery."""

    persister: SharePersister
    replicas: ReplicaManager
    image: MetadataImage
    purgatory: Purgatory
    clock: Clock
    timers: Timers
    spawn: Callable[[Coroutine[object, object, None]], object]
    """A function that runs a coroutine as a task and logs its exceptions."""
    config_of: Callable[[str], ShareGroupConfig]
    """A function that returns the settings of a group."""
    has_dead_letters: Callable[[], bool]
    """A function that returns True if share.version allows dead letters."""
    sessions_max: Callable[[], int]
    is_cached: Callable[[FileSlice], bool]
    """A function that returns True if a slice can be read without waiting for a disk."""


class Delivered(msgspec.Struct, frozen=True):
    """Records that a member has acquired, in batches that may have other records, too."""

    acquired: list[Acquired]
    records: memoryview


class ShareDelivery:
    """The share partitions that this broker leads, by partition and group."""

    def __init__(self, environment: DeliveryEnvironment, write_dead_letters: Callable[[LedPartition], object]) -> None:
        self._environment = environment
        self.counts: defaultdict[str, DeliveryCounts] = defaultdict(DeliveryCounts)
        """The counts of each group since the broker started."""
        self.sessions = ShareSessions(environment.sessions_max, self._on_closed)
        self._led: dict[TopicIdPartition, dict[str, LedPartition]] = {}
        self._led_per_group: Counter[str] = Counter()
        self._of_leaders = LedEnvironment(
            environment.persister,
            environment.clock,
            environment.timers,
            environment.config_of,
            environment.has_dead_letters,
            lambda led, answer: environment.spawn(self._find_start(led, answer)),
            write_dead_letters,
            self._ended,
            self._rested,
        )
        environment.image.subscribe(self._changed)

    def led(self) -> Iterator[LedPartition]:
        """Yield all share partitions in memory."""
        for groups in self._led.values():
            yield from groups.values()

    def config_of(self, group_id: str) -> ShareGroupConfig:
        """Return the settings of a group."""
        return self._environment.config_of(group_id)

    def find(self, group_id: str, key: TopicIdPartition) -> LedPartition | None:
        """Return a share partition if it is in memory."""
        return self._led.get(key, {}).get(group_id)

    def hosted(self, key: TopicIdPartition) -> Partition:
        """Return a partition that this broker leads. Raises ApiError."""
        hosted = self._environment.replicas.lookup.find(None, key.topic_id.bytes, key.partition)
        hosted.check_readable(-1)
        return hosted

    def open(self, group_id: str, key: TopicIdPartition) -> LedPartition:
        """Return a share partition, whose stored state may still be read. Raises ApiError.

        A state that failed to load, or that was fenced, is answered once; the next request begins again.
        """
        hosted = self.hosted(key)
        led = self.find(group_id, key)
        if led is not None and led.hosted is not hosted:
            led.stop()
            led = None
        if led is not None:
            led.check()
            return led
        waiters = self._environment.purgatory.wait_list()
        led = LedPartition(self._of_leaders, group_id, key, hosted, waiters, self.counts[group_id])
        self._led.setdefault(key, {})[group_id] = led
        self._led_per_group[group_id] += 1
        led.begin()
        if led.life is Life.FAILED:
            led.check()
        return led

    def _ended(self, led: LedPartition) -> None:
        groups = self._led.get(led.key, {})
        if groups.get(led.group_id) is led:
            del groups[led.group_id]
            if not groups:
                del self._led[led.key]
            self._led_per_group[led.group_id] -= 1
            if not self._led_per_group[led.group_id]:
                del self._led_per_group[led.group_id]
                if led.counts.are_zero:  # A name that nobody has used, such as one of many that a client tries.
                    self.counts.pop(led.group_id, None)

    def _changed(self, change: ImageChange) -> None:
        """Fence share partitions whose partitions this broker leads no longer."""
        for topic in (*change.deleted, *change.changed):
            for index in range(len(topic.partitions)) if self._led else ():
                for led in list(self._led.get(TopicIdPartition(topic.topic_id, index), {}).values()):
                    self._environment.timers.call_soon(partial(_fence_if_moved, led))

    async def _find_start(self, led: LedPartition, answer: Callable[[int | ApiError], object]) -> None:
        try:
            topic_partition = led.hosted.topic_partition
            with self._environment.replicas.failures.using(topic_partition.topic, topic_partition.partition) as hosted:
                found: int | ApiError = await self._start(led, hosted)
        except ApiError as error:
            found = error
        answer(found)

    async def _start(self, led: LedPartition, hosted: Partition) -> int:
        config, log = led.config, hosted.log
        if config.auto_offset_reset.strategy == "earliest":
            return log.log_start_offset
        hosted.check_caught_up()
        end = readable_end(hosted, is_committed=config.is_read_committed)
        if config.auto_offset_reset.strategy == "latest":
            return end
        since_ms = self._environment.clock.now_ms() - config.auto_offset_reset.duration_ms
        found = await offset_for_timestamp(log, max(since_ms, 0), end, FairTurn(self._environment.clock))
        return end if found is None else found.offset

    def available_bytes(self, led: LedPartition, bytes_max: int) -> int:
        """Return the size of the records that a member could acquire now, up to `bytes_max`."""
        offset = led.next_fetch_offset if led.life is Life.ACTIVE else None
        if offset is None:
            return 0
        try:
            end = readable_end(led.hosted, is_committed=led.config.is_read_committed)
            records = led.hosted.log.read(offset, bytes_max, end, at_least_one_batch=True) if offset < end else None
        except ApiError:
            return 0
        return 0 if records is None else records.length

    async def deliver(
        self, led: LedPartition, session: ShareSession, wish: Wish, bytes_max: int, *, at_least_one: bool
    ) -> Delivered | None:
        """Acquire records for a member, and return them; None if there are none now.

        Raises ApiError. While another request reads from the share partition there are none; a request that waits is
        woken if some are left.
        """
        led.is_offered = False
        if led.is_reading or led.life is not Life.ACTIVE:
            return None
        led.is_reading, is_at_end = True, False
        try:
            topic_partition = led.hosted.topic_partition
            with self._environment.replicas.failures.using(topic_partition.topic, topic_partition.partition):
                delivered = await self._deliver(led, session, wish, bytes_max, at_least_one=at_least_one)
                is_at_end = delivered is None and at_least_one and not session.is_closed
                return delivered
        finally:
            led.is_reading = False
            if not is_at_end:
                led.offer()

    async def _deliver(
        self, led: LedPartition, session: ShareSession, wish: Wish, bytes_max: int, *, at_least_one: bool
    ) -> Delivered | None:
        config, limits = led.config, led.limits
        while True:
            led.records.move_start(led.hosted.log.log_start_offset)
            offset = led.next_fetch_offset
            batches: Batches | None = None
            if offset is not None:
                is_cached, is_committed = self._environment.is_cached, config.is_read_committed
                batches = await read_batches(
                    led.hosted, offset, bytes_max, is_cached, at_least_one=at_least_one, is_committed=is_committed
                )
                led.check()
            if batches is None or offset is None or session.is_closed:
                return None
            acquired = led.records.acquire(session.key.member_id, offset, batches.fetched, wish, led.now_ms, limits)
            if acquired:
                session.touched.add(led.key)
                led.set_timer()
                led.counts.deliver(acquired)
                records = batches.with_records(acquired)
                led.hosted.bytes_out += len(records)
                return Delivered(acquired, records)
            if led.next_fetch_offset == offset:
                return None
            await asyncio.sleep(0)

    def _on_closed(self, session: ShareSession) -> None:
        self._environment.spawn(self._release(session))

    async def _release(self, session: ShareSession) -> None:
        """Release what a member has acquired; forget the group if it has no session any more."""
        (group_id, member_id), touched = session.key, session.touched
        async for key in in_turns(touched | set(session.partitions), RELEASED_PARTITIONS):
            led = self.find(group_id, key)
            if led is not None:
                led.release(member_id)
                self._rested(led)

    def _rested(self, led: LedPartition) -> None:
        """Forget a share partition of a group without sessions, unless something is being stored."""
        if led.is_idle and not led.is_reading and not self.sessions.has(led.group_id):
            led.stop()


def _fence_if_moved(led: LedPartition) -> None:
    """Fence a share partition if this broker leads it no longer."""
    try:
        led.check()
    except ApiError:
        return
