"""One seed of transactions: producers, zombies and copiers on three brokers, and random faults.

Violations begin with their names: lost, torn, aborted and seen, seen and gone, two values, twice or out of order,
zombie, dead, offsets apart, copied apart, last stable offset, never ends, fresh.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

from barnabas_broker.coordinators.transactions.decisions import IDLE
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TRANSACTION_STATE
from simulation import log_dir_moves
from simulation.backups import Backups
from simulation.clients import Client, Failed
from simulation.cluster import AUTHORIZER, SimulatedCluster
from simulation.committed_reader import CommittedReader, Place
from simulation.copier import Copier
from simulation.faults import Faults
from simulation.fresh_topics import FreshTopics
from simulation.history import History
from simulation.log_dir_moves import LogDirMoves
from simulation.loop import Deadlock, SimulatedLoop
from simulation.losses import Losses
from simulation.run import Outcome, ending, garbage_at_the_end, small_sizes
from simulation.transaction_history import Sent, TransactionHistory
from simulation.transactional_client import TransactionalClient
from simulation.transactional_producer import TransactionalProducer
from simulation.unhandled import unhandled_exceptions_fail

SOURCE: Final = "t"
COPIES: Final = "copies"
PARTITIONS: Final = 2
PRODUCERS: Final = 3
FAULTY_S: Final = 14.0
HEALING_S_MAX: Final = 60.0
ENDS_S_MAX: Final = 45.0
"""The time after which no transaction is open, once all faults are healed and no client writes.

It is longer than a coordinator waits for the answer of a leader whose machine lost power: 35 s.
"""
COMMITTED_MIN: Final = 10
"""A run with fewer committed transactions proves nothing."""
MOVES_SHARE: Final = 0.3
FRESH_SHARE: Final = 0.5
"""The share of the seeds in which topics are made beside."""
BACKUP_SHARE: Final = 0.5
"""The share of these seeds in which the metadata store is put back to a backup, and no topic is deleted."""
SETTINGS: Final = log_dir_moves.SETTINGS | {
    **AUTHORIZER,
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def run(seed: int) -> Outcome:
    """Run the story of one seed, which is always the same."""
    loop = SimulatedLoop(Random(seed))
    asyncio.set_event_loop(loop)
    story = Story(loop, seed)
    try:
        with unhandled_exceptions_fail(loop, story.history), garbage_at_the_end(), ending(loop):
            loop.run_until_complete(story.run())
    except Deadlock:
        story.history.violation("everybody waits for somebody")
    finally:
        asyncio.set_event_loop(None)
    return Outcome(seed, story.history.violations, story.cluster.events, len(story.transactions.committed), loop.time())


class NeverEndsError(Exception):
    """The error that a transaction is still open long after all faults were healed."""


class Story:
    """The events on one cluster."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        random = self._random = Random(f"transactions {seed}")
        self._loop = loop
        self.history = History()
        self.transactions = TransactionHistory(SOURCE, self.history.violation)
        self.cluster = SimulatedCluster(
            loop,
            random,
            3,
            SETTINGS | {"replica.fetch.max.bytes": random.choice(["1048576", "400"])},
            self.history.violation,
            lambda: str(random.getrandbits(64)),
            small_sizes(seed),
            is_one_machine=random.random() < 0.5,
            compacts=False,
            versions=None,
        )
        topic = random.choice([SOURCE, TRANSACTION_STATE, CONSUMER_OFFSETS])
        # If a clock is set back by ten minutes, a transaction times out ten minutes later.
        self._faults = Faults(self.cluster, random, topic, stranded=None, sets_clocks=False, delays_watches=True)
        self._losses = Losses(self.cluster, lambda _: setattr(self.transactions, "is_lossy", True))
        self._moves = LogDirMoves(self.cluster, self.history, self._client) if random.random() < MOVES_SHARE else None
        self._producers = [
            TransactionalProducer(f"p{number}", self._client, SOURCE, PARTITIONS, self.transactions)
            for number in range(PRODUCERS)
        ]
        self._copiers = [Copier(self._client(f"c{number}"), SOURCE, COPIES) for number in range(2)]
        is_fresh, is_put_back = random.random() < FRESH_SHARE, random.random() < BACKUP_SHARE
        self._backups = Backups(self.cluster, random) if is_fresh and is_put_back else None
        self._fresh = FreshTopics(self.cluster, self._client, random, self._is_wrong, deletes=not is_put_back)
        self._fresh.is_stopping = not is_fresh

    def _is_wrong(self, what: str) -> None:
        if not self.transactions.is_lossy:
            self.history.violation(what)

    def _client(self, name: str) -> Client:
        brokers = [broker.name for broker in self.cluster.brokers]
        return Client(self.cluster.network, name, Random(self._random.getrandbits(64)), brokers)

    async def run(self) -> None:
        """Run the whole story."""
        self.cluster.start()
        await self._create_topics()
        producing = [asyncio.ensure_future(each.run()) for each in self._producers]
        producing.append(asyncio.ensure_future(self._fresh.run()))
        others = [asyncio.ensure_future(each.run()) for each in self._copiers]
        others.append(asyncio.ensure_future(self._leave_transactions_open()))
        others += [asyncio.ensure_future(self._watch(partition)) for partition in range(PARTITIONS)]
        if self._moves is not None:
            others.append(asyncio.ensure_future(self._moves.run()))
        if self._backups is not None:
            others.append(asyncio.ensure_future(self._backups.take(FAULTY_S)))
        await self._faults.run(FAULTY_S)
        if self._backups is not None:
            await self._backups.put_back()
            producing.append(asyncio.ensure_future(self._backups.restore()))
        self.cluster.note("all is mended")
        self.cluster.heal()
        self._fresh.read_all = self._read_values
        accepting = asyncio.ensure_future(self._losses.accept_in_time())
        await self._until_enough_is_committed()
        for each in self._producers:
            each.is_stopping = True
        self._fresh.is_stopping = True
        try:
            async with asyncio.timeout(HEALING_S_MAX):
                await asyncio.gather(*producing)
            for task in others:
                task.cancel()
            async with asyncio.timeout(HEALING_S_MAX * 2):
                await self._check_at_the_end()
        except TimeoutError:
            self.history.violation("never ends: a client still waits for its last answer")
        except NeverEndsError as error:
            self.history.violation(f"never ends: {error}")
        accepting.cancel()

    async def _create_topics(self) -> None:
        while not all(broker.is_serving for broker in self.cluster.brokers):
            await asyncio.sleep(0.1)
        node = self.cluster.brokers[0].node
        assert node is not None
        writer = node.handler_environment.metadata_writer
        await writer.create_topics([NewTopic(SOURCE, PARTITIONS, 3), NewTopic(COPIES, 1, 3)])

    async def _until_enough_is_committed(self) -> None:
        """Wait a little longer, but not for ever, if no broker could start for most of the time."""
        end_s = self._loop.time() + HEALING_S_MAX
        while len(self.transactions.committed) < COMMITTED_MIN and self._loop.time() < end_s:
            await asyncio.sleep(0.5)

    async def _watch(self, partition: int) -> None:
        reader = CommittedReader(self._client("r"), SOURCE, partition)
        await reader.watch(self.transactions.saw, self.transactions.is_stable_until)

    async def _leave_transactions_open(self) -> None:
        """Run producers that begin a transaction, write, and never return."""
        number = 0
        while True:
            await asyncio.sleep(self._random.expovariate(1 / 2))
            number += 1
            name = f"leaver{number}"
            lane = TransactionalClient(self._client(name), name, name)
            value = f"{name}/1"
            self.transactions.sent(value, Sent(tuple(range(PARTITIONS)), 1))
            self.transactions.aborted.add(value)
            await lane.init()
            for partition in range(PARTITIONS):
                await lane.write(SOURCE, partition, [value])
            await lane.commit_offset(SOURCE, 1)

    async def _check_at_the_end(self) -> None:
        logs = [await self._read(SOURCE, partition) for partition in range(PARTITIONS)]
        offsets = {each.name: await each.lane.committed_offset(SOURCE) for each in self._producers}
        self.transactions.check(logs, offsets)
        copied = await self._copiers[0].copy(is_last=True)
        copies = await self._read(COPIES, 0)
        end = await self._copiers[0].last_stable_offset()
        self.transactions.check_copies(list(logs[0].values()), list(copies.values()), copied, end)
        await self._fresh.check(self._read_values)
        await self._until_all_are_idle()
        if self._moves is not None:
            await self._moves.settle()
        if len(self.transactions.committed) < COMMITTED_MIN:
            self.history.violation(f"too little was committed: {len(self.transactions.committed)} transactions")

    async def _read(self, topic: str, partition: int) -> dict[Place, str]:
        """Return all that a consumer of committed records finds, once no transaction is open any more."""
        reader = CommittedReader(self._client("end"), topic, partition)
        log: dict[Place, str] = {}
        end_s = self._loop.time() + ENDS_S_MAX
        while not reader.is_at_end:
            with suppress(Failed):
                log |= dict(await reader.poll())
            if self._loop.time() > end_s:
                raise NeverEndsError(f"a transaction of {topic}-{partition} is open at {reader.position}")
            await asyncio.sleep(0.05)
        return log

    async def _read_values(self, topic: str, partition: int) -> list[str]:
        return list((await self._read(topic, partition)).values())

    async def _until_all_are_idle(self) -> None:
        """Wait until the coordinators have noted the end of every transaction."""
        end_s = self._loop.time() + ENDS_S_MAX
        while busy := list(self._not_idle()):
            if self._loop.time() > end_s:
                raise NeverEndsError(", ".join(busy))
            await asyncio.sleep(0.1)

    def _not_idle(self) -> Iterator[str]:
        for broker in self.cluster.brokers:
            if broker.node is None:
                yield f"{broker.name} is down"
                continue
            try:
                for name, found in broker.node.handler_environment.transactions.transactions():
                    if found.state not in IDLE:
                        yield f"{name} is {found.state.name}"
            except ApiError as error:
                yield f"{broker.name}: {error}"
