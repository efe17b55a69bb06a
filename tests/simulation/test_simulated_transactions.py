"""Transactions of several producers on three brokers that die: all or nothing on every partition, in the same order."""

import asyncio
from random import Random

import pytest

from barnabas_broker.app.node_environment import NodeSizes
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from harness.soak import size
from simulation.clients import Client, Failed
from simulation.cluster import SimulatedCluster
from simulation.history import History
from simulation.loop import SimulatedLoop
from simulation.run import ending, garbage_at_the_end
from simulation.transactional_client import TransactionalProducer, committed_values
from simulation.unhandled import unhandled_exceptions_fail

TOPIC, PARTITIONS, PRODUCERS = "t", 2, 3
FAULTY_S, HEALING_S, LAST_LOOK_S = 12.0, 60.0, 90.0
SEEDS = size(range(2), range(40))
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Story:
    """One seed."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.random = Random(seed)
        self.history = History()
        self.offsets: list[int] = []
        self.cluster = SimulatedCluster(
            loop,
            self.random,
            3,
            SETTINGS,
            self.history.violation,
            lambda: str(self.random.getrandbits(64)),
            NodeSizes(),
            is_one_machine=False,
            compacts=False,
            versions=None,
        )
        brokers = [broker.name for broker in self.cluster.brokers]
        self.producers = [
            TransactionalProducer(self._client(f"c{number}", brokers), f"p{number}", TOPIC, PARTITIONS)
            for number in range(PRODUCERS)
        ]
        self.reader = self._client("reader", brokers)

    def _client(self, name: str, brokers: list[str]) -> Client:
        return Client(self.cluster.network, name, Random(self.random.getrandbits(32)), brokers)

    async def run(self) -> list[list[str]]:
        """What a consumer of committed records finds in each partition at last."""
        self.cluster.start()
        await self._make_topic()
        tasks = [asyncio.ensure_future(each.run()) for each in self.producers]
        await self._kill_now_and_then()
        self.cluster.heal()
        for each in self.producers:
            each.is_stopping = True
        async with asyncio.timeout(HEALING_S):
            await asyncio.gather(*tasks)
        self.offsets = [await each.committed_offset() for each in self.producers]
        return [await self._read(partition) for partition in range(PARTITIONS)]

    async def _make_topic(self) -> None:
        while not all(broker.is_serving for broker in self.cluster.brokers):
            await asyncio.sleep(0.1)
        node = self.cluster.brokers[0].node
        assert node is not None
        await node.handler_environment.metadata_writer.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])

    async def _kill_now_and_then(self) -> None:
        end_s = self.cluster.loop.time() + FAULTY_S
        while self.cluster.loop.time() < end_s:
            await asyncio.sleep(self.random.uniform(1, 4))
            broker = self.random.choice(self.cluster.brokers)
            broker.kill()
            await asyncio.sleep(self.random.uniform(0.1, 2))
            broker.wanted = True
            broker.start()

    async def _read(self, partition: int) -> list[str]:
        end_s = self.cluster.loop.time() + LAST_LOOK_S
        while True:
            try:
                return await committed_values(self.reader, TOPIC, partition)
            except Failed:
                if self.cluster.loop.time() > end_s:
                    raise
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_transaction_is_read_from_all_partitions_or_from_none(seed: int) -> None:
    loop = SimulatedLoop(Random(seed))
    asyncio.set_event_loop(loop)
    story = Story(loop, seed)
    try:
        with unhandled_exceptions_fail(loop, story.history), garbage_at_the_end(), ending(loop):
            first, *others = loop.run_until_complete(story.run())
    finally:
        asyncio.set_event_loop(None)
    committed = {value for each in story.producers for value in each.committed}
    aborted = {value for each in story.producers for value in each.aborted}
    assert len(committed) > 10
    assert aborted
    assert len(set(first)) == len(first)
    assert committed <= set(first)
    assert not aborted & set(first)
    for other in others:
        assert sorted(other) == sorted(first)
        for producer in range(PRODUCERS):
            assert of(producer, other) == of(producer, first)
    for producer, offset in enumerate(story.offsets):
        assert of(producer, first)[-1] == f"p{producer}/{offset}"
    assert story.history.violations == []


def of(producer: int, values: list[str]) -> list[str]:
    """The values of one producer, in their order."""
    return [value for value in values if value.startswith(f"p{producer}/")]
