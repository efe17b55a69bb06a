"""Topics that are made and deleted while transactions write to them: not every broker knows them yet.

A commit that a producer knows of must be readable in its topic at the end, and nothing of an aborted transaction. While
a topic's metadata is late or lost, its transactions may wait, but must not end without it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import topic_key
from simulation.clients import Client
from simulation.cluster import SimulatedCluster
from simulation.loop import Host
from simulation.transactional_client import Lost, TransactionalClient

LANES: Final = 3
REPLICAS: Final = 3
ABSENT_S_MAX: Final = 1.5
"""The longest time between a deletion and the next topic of the same name."""
OPEN_S_MAX: Final = 1.5
"""The longest time for which a transaction is open."""
COMMITS_SHARE: Final = 0.8
CHANGE_S_MAX: Final = 5.0
"""The time after which another broker is asked for a change."""
TRANSACTIONS_MAX: Final = 3
"""The largest number of transactions to one topic."""


class ReadAll(Protocol):
    """A function that returns the committed values of a partition, once no transaction is open any more."""

    def __call__(self, topic: str, partition: int) -> Coroutine[Any, Any, list[str]]:
        """Return the values."""
        ...


class FreshTopics:
    """The topics. If `deletes` is False, each one has a name of its own, and stays."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        make_client: Callable[[str], Client],
        random: Random,
        violation: Callable[[str], object],
        *,
        deletes: bool,
    ) -> None:
        self.is_stopping = False
        self.read_all: ReadAll | None = None
        """The function with which each topic is checked before its deletion, once all faults are healed."""
        self._cluster = cluster
        self._make_client = make_client
        self._random = random
        self._violation = violation
        self._deletes = deletes
        self._number = 0
        self._committed: dict[str, list[str]] = {}
        """The committed values of the topics that exist, by name."""
        self._aborted: set[str] = set()

    async def run(self) -> None:
        """Make topics and write to them until this should stop; end the last transactions."""
        await asyncio.gather(*(self._run_lane(f"fresh{lane}") for lane in range(LANES)))

    async def _run_lane(self, lane: str) -> None:
        topic, generation = lane, 0
        while not self.is_stopping:
            generation += 1
            if not self._deletes:
                topic = f"{lane}-{generation}"
            await self._until(topic, exists=True)
            self._committed[topic] = []
            for _ in range(self._random.randint(1, TRANSACTIONS_MAX)):
                await self._write(topic)
            if self._deletes and not self.is_stopping and self._random.random() < 0.8:
                if self.read_all is not None:
                    await self._check_topic(topic, self.read_all)
                del self._committed[topic]
                await self._until(topic, exists=False)
                await asyncio.sleep(self._random.uniform(0, ABSENT_S_MAX))

    async def _until(self, topic: str, *, exists: bool) -> None:
        """Create or delete a topic at any broker, which may not know yet what an earlier try has done."""
        while (topic_key(topic) in self._cluster.store.documents) is not exists:
            broker = self._random.choice(self._cluster.brokers)
            if broker.is_serving and broker.node is not None and broker.host is not None:
                writer = broker.node.handler_environment.metadata_writer
                work = writer.create_topics([NewTopic(topic, 1, REPLICAS)]) if exists else writer.delete_topics([topic])
                await self._work(broker.host, work)
            await asyncio.sleep(0.1)

    async def _work(self, host: Host, work: Coroutine[Any, Any, object]) -> None:
        """Wait for work on a machine. Without power the work never ends, even if it is cancelled."""
        task = self._cluster.loop.spawn(host, work)
        done, _ = await asyncio.wait({task}, timeout=CHANGE_S_MAX)
        task.cancel()
        for each in done:
            each.result()

    async def _write(self, topic: str) -> None:
        """Write one value in a transaction of a new id, whose coordinator is any broker."""
        self._number += 1
        value = f"{topic}/{self._number}"
        name = f"fresh {self._random.getrandbits(32)}"
        lane = TransactionalClient(self._make_client(name), name, name)
        commits = self._random.random() < COMMITS_SHARE
        try:
            await lane.init()
            await lane.write(topic, 0, [value])
            await asyncio.sleep(self._random.choice([0, 0, self._random.uniform(0, OPEN_S_MAX)]))
            await lane.end(commits=commits)
        except Lost:
            if not lane.may_have_committed:
                self._aborted.add(value)
        else:
            if commits:
                self._committed[topic].append(value)
            else:
                self._aborted.add(value)

    async def check(self, read_all: ReadAll) -> None:
        """Check the records of all topics that exist."""
        for topic in self._committed:
            await self._check_topic(topic, read_all)

    async def _check_topic(self, topic: str, read_all: ReadAll) -> None:
        found = await read_all(topic, 0)
        for value in self._committed[topic]:
            if found.count(value) != 1:
                self._violation(f"fresh: {value} is committed, and {found.count(value)} times in {topic}: {found}")
        for value in self._aborted.intersection(found):
            self._violation(f"fresh: {value} was aborted, and is in {topic}")
