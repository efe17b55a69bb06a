"""One seed of a share group: members that die, stall and acknowledge wrongly, on three brokers, and random faults.

Violations begin with their names (`share_history`).
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final
from uuid import UUID

from barnabas_broker.coordinators.share_delivery.sessions import SessionKey, ShareSession
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.messages import message_class
from barnabas_core.topic_partition import SHARE_GROUP_STATE, TopicIdPartition
from simulation.clients import NONE, Client, Failed, Producer
from simulation.cluster import AUTHORIZER, SimulatedCluster
from simulation.committed_reader import CommittedReader
from simulation.compaction import CLEANER_SETTINGS
from simulation.faults import Faults
from simulation.history import History
from simulation.loop import Deadlock, SimulatedLoop
from simulation.losses import Losses
from simulation.run import Outcome, ending, garbage_at_the_end, small_sizes
from simulation.share_history import Incarnation, Place, ShareHistory
from simulation.share_member import CALM, ShareMember
from simulation.share_watch import LETTERS, ShareWatch, deliveries_of_letters, kept, leader_of, records_of
from simulation.transactional_client import Lost, TransactionalClient
from simulation.unhandled import unhandled_exceptions_fail

GROUP: Final = "workers"
SOURCE: Final = "jobs"
KEYED: Final = "keyed"
PARTITIONS: Final = 2
MEMBERS: Final = 4
FAULTY_S: Final = 14.0
HEALING_S_MAX: Final = 60.0
DRAINED_S_MAX: Final = 90.0
ACCEPTED_MIN: Final = 10
"""A run with fewer accepted records proves nothing."""
LOCK_MS: Final = 1500
DELETE_RECORDS: Final = 21, 2
ALTER_CONFIGS: Final = 44, 1
GROUP_RESOURCE: Final = 32
RETENTION: Final = {"retention.bytes": "6000", "internal.segment.bytes": "1000"}
COMPACTED: Final = {"cleanup.policy": "compact", "internal.segment.bytes": "400", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS: Final = {
    **AUTHORIZER,
    **CLEANER_SETTINGS,
    "transaction.state.log.num.partitions": "2",
    "log.retention.check.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.prune.interval.ms": "2000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1500",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.write.timeout.ms": "2000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "2500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
}


def run(seed: int) -> Outcome:
    """Run the story of one seed, which is always the same."""
    loop = SimulatedLoop(Random(seed))
    asyncio.set_event_loop(loop)
    story = Story(loop, seed)
    try:
        with (
            unhandled_exceptions_fail(loop, story.history),
            garbage_at_the_end(),
            ending(loop),
            deliveries_of_letters(story.watch),
        ):
            loop.run_until_complete(story.run())
    except Deadlock:
        story.history.violation("everybody waits for somebody")
    finally:
        asyncio.set_event_loop(None)
    return Outcome(seed, story.history.violations, story.cluster.events, story.shares.acknowledged_count, loop.time())


class Story:
    """The events on one cluster."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        random = self._random = Random(f"shares {seed}")
        self._loop = loop
        self.history = History()
        self._compacts = random.random() < 0.4
        self._is_committed = random.random() < 0.5
        self._count_limit = random.choice([3, 5])
        self._topic_configs = RETENTION if random.random() < 0.25 else {}
        self.cluster = SimulatedCluster(
            loop,
            random,
            3,
            SETTINGS,
            self.history.violation,
            lambda: str(random.getrandbits(64)),
            small_sizes(seed),
            is_one_machine=random.random() < 0.5,
            compacts=self._compacts,
            versions=None,
        )
        self.shares = ShareHistory(self.history.violation, LOCK_MS / 1000, self._count_limit, _is_open)
        self.watch = ShareWatch(self.cluster, self.shares, GROUP)
        topic = random.choice([SOURCE, LETTERS, SHARE_GROUP_STATE])
        self._faults = Faults(self.cluster, random, topic, stranded=None, sets_clocks=False, delays_watches=True)
        self._losses = Losses(self.cluster, lambda _: setattr(self.shares, "is_lossy", True))
        self._names: dict[UUID, str] = {}
        self._members: list[ShareMember] = []
        self._deleted = [0] * PARTITIONS
        """The highest offset below which records of each partition of the source may have been deleted.

        A power cut may bring them back, because brokers sync the start of a log later. The group is not given them.
        """
        self._is_calm = False
        self._is_stopping = False

    def _client(self, name: str) -> Client:
        brokers = [broker.name for broker in self.cluster.brokers]
        return Client(self.cluster.network, name, Random(self._random.getrandbits(64)), brokers)

    async def run(self) -> None:
        """Run the whole story."""
        self.cluster.start()
        await self._create_topics()
        await self._set_up_group()
        producing = [self._spawn(client, work) for client, work in self._producers()]
        transactions = [asyncio.ensure_future(self._transact(f"x{number}")) for number in range(2)]
        others = [asyncio.ensure_future(self._lives(f"m{number}")) for number in range(MEMBERS)]
        others += [asyncio.ensure_future(self._delete_records()), asyncio.ensure_future(self.watch.run())]
        await self._faults.run(FAULTY_S)
        self.cluster.note("all is mended")
        self.cluster.heal()
        accepting = asyncio.ensure_future(self._losses.accept_in_time())
        await self._until_enough_is_accepted()
        for task in producing:
            task.cancel()
        self._is_stopping = True
        try:
            async with asyncio.timeout(HEALING_S_MAX):
                await asyncio.gather(*transactions)
            self._be_calm()
            await self._until_drained()
            for task in others:
                task.cancel()
            async with asyncio.timeout(HEALING_S_MAX):
                await self._check_at_the_end()
        except TimeoutError:
            self.shares.violation("stuck: a client still waits for its last answer")
        accepting.cancel()

    def _spawn(self, client: Client, work: Any) -> asyncio.Task[Any]:
        return self._loop.spawn(client.host, work)

    async def _create_topics(self) -> None:
        while not all(broker.is_serving for broker in self.cluster.brokers):
            await asyncio.sleep(0.1)
        node = self.cluster.brokers[0].node
        assert node is not None, "broker 1 must serve"
        topics = [NewTopic(SOURCE, PARTITIONS, 3, configs=self._topic_configs)]
        topics.append(NewTopic(LETTERS, PARTITIONS, 3, configs={"errors.deadletterqueue.group.enable": "true"}))
        topics += [NewTopic(KEYED, 1, 3, configs=COMPACTED)] if self._compacts else []
        made = await node.handler_environment.metadata_writer.create_topics(topics)
        for name, document in made.items():
            assert isinstance(document, TopicDocument), f"{name} must be created: {document}"
            if name != LETTERS:
                self._names[document.topic_id] = name

    async def _set_up_group(self) -> None:
        """Set the configs of the group, and wait until all brokers have them, before the group has members."""
        isolation = "read_committed" if self._is_committed else "read_uncommitted"
        wanted = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": isolation,
            "share.delivery.count.limit": str(self._count_limit),
            "errors.deadletterqueue.topic.name": LETTERS,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        kind = message_class("IncrementalAlterConfigsRequest")
        resource = kind.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=0, value=value) for name, value in wanted.items()
        ]
        of_group = resource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
        client = self._client("admin")
        while True:
            with suppress(Failed):
                response = await client.any(ALTER_CONFIGS, kind(resources=[of_group], validate_only=False))
                if response.responses[0].error_code == NONE:
                    break
            await client.pause()
        while not all(
            each.node is not None and GROUP in each.node.image.group_configs for each in self.cluster.brokers
        ):
            await asyncio.sleep(0.1)

    def _producers(self) -> Iterator[tuple[Client, Any]]:
        for topic, partition in [(SOURCE, number) for number in range(PARTITIONS)] + [(KEYED, 0)] * self._compacts:
            client = self._client(f"p-{topic}")
            idempotent = topic == SOURCE
            key = (lambda random: f"key {random.randrange(4)}".encode()) if topic == KEYED else None
            yield client, Producer(client, topic, partition, self.history, idempotent=idempotent, key=key).run()

    async def _transact(self, name: str) -> None:
        """Commit and abort transactions until the end."""
        client, number = self._client(name), 0
        while not self._is_stopping:
            lane = TransactionalClient(client, name, name)
            with suppress(Lost):
                await lane.init()
                while not self._is_stopping:
                    number += 1
                    for partition in range(PARTITIONS):
                        await lane.write(SOURCE, partition, [f"{name}/{number}/{partition}"])
                    await lane.end(commits=client.random.random() < 0.5)
                    await asyncio.sleep(client.random.expovariate(2))

    async def _lives(self, name: str) -> None:
        """Run a member over its incarnations."""
        while True:
            client = self._client(name)
            member = ShareMember(client, GROUP, self._names, self.shares, self._look, LOCK_MS / 1000)
            member.habits = CALM if self._is_calm else member.habits
            self._members.append(member)
            task = self._spawn(client, member.run())
            try:
                await asyncio.sleep(client.random.expovariate(1 / 5))
                if self._is_calm:
                    await task
            finally:
                task.cancel()
            self._members.remove(member)
            with suppress(Failed):
                await member.leave()
            await asyncio.sleep(client.random.expovariate(1))

    def _be_calm(self) -> None:
        self._is_calm = True
        for member in self._members:
            member.habits = CALM

    def _look(self, broker_name: str, member_id: str, key: TopicIdPartition) -> Incarnation | None:
        """Return what a broker has in memory for a member and a partition."""
        broker = next(each for each in self.cluster.brokers if each.name == broker_name)
        if broker.node is None:
            return None
        delivery = broker.node.handler_environment.shares
        led, session = delivery.find(GROUP, key), delivery.sessions._sessions.get(SessionKey(GROUP, member_id))
        return None if led is None or session is None else Incarnation(led, session)

    async def _delete_records(self) -> None:
        """Delete records of the source now and then, perhaps while members have locks on them."""
        client = self._client("deleter")
        while not self._is_calm:
            await asyncio.sleep(client.random.expovariate(1 / 4))
            partition = client.random.randrange(PARTITIONS)
            leader = leader_of(self.cluster, SOURCE, partition)
            if leader is None or self._is_calm:
                continue
            begin, end = leader.log.log_start_offset, leader.log.high_watermark
            offset = min(begin + client.random.randint(0, 20), end)
            kind = message_class("DeleteRecordsRequest")
            wanted = kind.DeleteRecordsTopic
            of_partition = wanted.DeleteRecordsPartition(partition_index=partition, offset=offset)
            made = kind(topics=[wanted(name=SOURCE, partitions=[of_partition])], timeout_ms=1500)
            self.cluster.note(f"delete records of {SOURCE}-{partition} below {offset}")
            self._deleted[partition] = max(self._deleted[partition], offset)
            with suppress(Failed):
                await client.ask(await client.leader(SOURCE, partition), DELETE_RECORDS, made)

    async def _until_enough_is_accepted(self) -> None:
        end_s = self._loop.time() + HEALING_S_MAX
        while self.shares.acknowledged_count < ACCEPTED_MIN and self._loop.time() < end_s:
            await asyncio.sleep(0.5)

    def _sources(self) -> Iterator[TopicIdPartition]:
        for topic_id, name in self._names.items():
            for number in range(PARTITIONS if name == SOURCE else 1):
                yield TopicIdPartition(topic_id, number)

    async def _until_drained(self) -> None:
        """Wait until the group has finished all records."""
        end_s = self._loop.time() + DRAINED_S_MAX
        while behind := [why for key in self._sources() if (why := self._why_behind(key))]:
            if self._loop.time() > end_s:
                self.shares.violation(f"stuck: {'; '.join(behind)}")
                return
            await asyncio.sleep(0.2)

    def _why_behind(self, key: TopicIdPartition) -> str:
        name = self._names[key.topic_id]
        leader = leader_of(self.cluster, name, key.partition)
        if leader is None:
            return f"{name}-{key.partition} has no leader"
        end = leader.log.high_watermark
        for broker in self.cluster.brokers:
            led = None if broker.node is None else broker.node.handler_environment.shares.find(GROUP, key)
            if led is not None and led.hosted is leader:
                window = led.records.window
                return "" if window.start >= end else f"{name}-{key.partition} has {window.ranges} below {end}"
        return f"nobody fetches {name}-{key.partition}"

    async def _check_at_the_end(self) -> None:
        self.watch.look()
        for key in self._sources():
            name = self._names[key.topic_id]
            leader = leader_of(self.cluster, name, key.partition)
            assert leader is not None, "the group was drained"
            committed = await self._committed(leader) if self._is_committed else None
            begin = self._deleted[key.partition] if name == SOURCE else 0
            records = {place: record.value or b"" for place, record in kept(records_of(leader, begin)).items()}
            self.shares.check_finished(records, records if committed is None else committed)
        if self.shares.acknowledged_count < ACCEPTED_MIN:
            self.shares.violation(f"too little was accepted: {self.shares.acknowledged_count} records")

    async def _committed(self, leader: Partition) -> set[Place]:
        """Return the places of committed records; retention may delete some meanwhile."""
        reader = CommittedReader(self._client("end"), *leader.topic_partition)
        found: set[Place] = set()
        while not reader.is_at_end:
            reader.position = max(reader.position, leader.log.log_start_offset)
            with suppress(Failed):
                found |= {Place(*place) for place, _ in await reader.poll()}
            await asyncio.sleep(0.05)
        return found


def _is_open(session: object) -> bool:
    return isinstance(session, ShareSession) and not session.is_closed
