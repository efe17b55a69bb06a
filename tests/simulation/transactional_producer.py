"""Producers of transactions that end them in every way, and zombies, which go on after others have taken their id.

Each value is the number of a transaction (`transaction_history`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from simulation.clients import Client
from simulation.transaction_history import NO_OFFSET, Sent, TransactionHistory
from simulation.transactional_client import TIMEOUT_MS, Lost, TransactionalClient, all_of

COMMITS_SHARE: Final = 0.7
IS_LATE_SHARE: Final = 0.04
"""The share of transactions whose producers go on after the timeout."""
IS_FENCED_SHARE: Final = 0.15
"""The share of transactions before whose end another producer takes the id."""
CHANGES_ITS_MIND_SHARE: Final = 0.2
"""The share of commits after which the producer aborts its next transaction at once, while markers are missing."""
ZOMBIE_OFFSET: Final = 1_000_000
ZOMBIE_LIFE_S_MAX: Final = 4.0


class TransactionalProducer:
    """Runs one transaction after the other to `topic`, some with the offset of a group with the producer's name."""

    def __init__(
        self, name: str, make_client: Callable[[str], Client], topic: str, partitions: int, history: TransactionHistory
    ) -> None:
        self.is_stopping = False
        self.name = name
        self._make_client = make_client
        self._client = make_client(name)
        self.lane = TransactionalClient(self._client, name, name)
        self._topic = topic
        self._partitions = range(partitions)
        self._history = history
        self._number = 0
        self._last_offset: int | None = NO_OFFSET
        """The offset of the last committed transaction, or None if it is unknown which one that was."""
        self._zombies: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run until it should stop, and end the last transaction."""
        await self.lane.init()
        while not self.is_stopping:
            self._number += 1
            await self._one(f"{self.name}/{self._number}")
            await asyncio.sleep(self._client.random.expovariate(8))
        await self.lane.init()
        await asyncio.gather(*self._zombies)

    async def _one(self, value: str) -> None:
        chance, history = self._client.random, self._history
        count = chance.randint(1, len(self._partitions))
        sent = Sent(
            tuple(sorted(chance.sample(self._partitions, count))),
            self._number if chance.random() < 0.5 else NO_OFFSET,
        )
        history.sent(value, sent)
        try:
            await self._write(value, sent)
            if chance.random() < IS_FENCED_SHARE:
                await self._be_fenced(value)
                return
            if chance.random() < IS_LATE_SHARE:
                await asyncio.sleep(TIMEOUT_MS / 1000 * 1.5)
            commits = chance.random() < COMMITS_SHARE
            await self.lane.end(commits=commits)
        except Lost:
            if not self.lane.may_have_committed:
                history.aborted.add(value)
            elif sent.offset != NO_OFFSET:
                self._last_offset = None
            await self.lane.init()
        else:
            await self._ended(value, sent, commits)

    async def _write(self, value: str, sent: Sent) -> None:
        works = [self.lane.write(self._topic, partition, [value]) for partition in sent.partitions]
        if sent.offset != NO_OFFSET:
            works.append(self.lane.commit_offset(self._topic, sent.offset))
        await all_of(*works)

    async def _ended(self, value: str, sent: Sent, commits: bool) -> None:
        (self._history.committed if commits else self._history.aborted).add(value)
        if commits and sent.offset != NO_OFFSET:
            self._last_offset = sent.offset
        if commits and self._client.random.random() < CHANGES_ITS_MIND_SHARE:
            await self._abort_nothing(value)
        if self._client.random.random() < 0.3:
            found = await self.lane.committed_offset(self._topic)
            if self._last_offset is not None:
                self._history.check_offset(self.name, found, self._last_offset)
            self._last_offset = found

    async def _abort_nothing(self, value: str) -> None:
        """Abort a transaction without records: nobody has fenced the producer, so it must not be refused."""
        try:
            await self.lane.end(commits=False)
        except Lost as error:
            self._history.is_dead(f"the producer of {value} was refused with {error}, and nobody fenced it")
            await self.lane.init()

    async def _be_fenced(self, value: str) -> None:
        """Let another producer take the id; the old one goes on, unaware of it."""
        self._history.aborted.add(value)
        zombie = _Zombie(self.lane.double(self._make_client(self.name)), self._history, self._topic, f"{value}-zombie")
        await self.lane.init()
        work = zombie.haunt(self._client.random.randint(1, 3), self._partitions)
        self._zombies.append(asyncio.ensure_future(work))


class _Zombie:
    """A producer whose requests must all be refused: another producer has its id before it sends any."""

    def __init__(self, lane: TransactionalClient, history: TransactionHistory, topic: str, value: str) -> None:
        self._lane = lane
        self._history = history
        self._topic = topic
        self._value = value

    async def haunt(self, times: int, partitions: range) -> None:
        """Write to each partition, commit an offset and end the transaction, this many times."""
        for _ in range(times):
            await asyncio.sleep(self._lane.client.random.uniform(0, ZOMBIE_LIFE_S_MAX / times))
            for partition in partitions:
                await self._try("Produce", self._lane.write(self._topic, partition, [self._value]))
            await self._try("TxnOffsetCommit", self._lane.commit_offset(self._topic, ZOMBIE_OFFSET))
            await self._try("EndTxn", self._lane.end(commits=True))

    async def _try(self, what: str, work: Awaitable[None]) -> None:
        try:
            await work
        except Lost:
            return
        self._history.zombie_is_answered(f"{what} of {self._value}")
