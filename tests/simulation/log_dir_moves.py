"""Replicas are moved between the log dirs of their broker by chance (AlterReplicaLogDirs), while everything goes on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas_broker.replication.fetch_session import MoveSteps
from barnabas_broker.wire.messages import message_class
from barnabas_core.topic_partition import TopicPartition
from simulation.clients import Client, Failed
from simulation.cluster import LOG_DIRS, SimulatedBroker, SimulatedCluster
from simulation.history import History

ALTER_REPLICA_LOG_DIRS: Final = 34, 2
SETTINGS: Final = {"replica.alter.log.dirs.io.max.bytes.per.second": "20000"}
BETWEEN_S: Final = 0.5
SETTLE_S_MAX: Final = 20.0
STEPS: Final = MoveSteps(copy_bytes=300, swap_lag_bytes=600)
"""The steps of a move: it takes many turns, though the logs of a simulation are small."""


class LogDirMoves:
    """The moves of any partition on any broker."""

    def __init__(self, cluster: SimulatedCluster, history: History, make_client: Callable[[str], Client]) -> None:
        self._cluster = cluster
        self._history = history
        self._client = make_client("mover")

    async def run(self) -> None:
        """Move until this is cancelled."""
        random = self._client.random
        while True:
            await asyncio.sleep(random.expovariate(1 / BETWEEN_S))
            broker = random.choice(self._cluster.brokers)
            here = sorted(partition.topic_partition for partition in broker.partitions())
            if here:
                with suppress(Failed):
                    await self._move(broker, random.choice(here), random.choice(LOG_DIRS))

    async def _move(self, broker: SimulatedBroker, topic_partition: TopicPartition, log_dir: str) -> None:
        self._cluster.note(f"move {topic_partition} on {broker.name} to {log_dir}")
        request = message_class("AlterReplicaLogDirsRequest")
        wanted = request.AlterReplicaLogDir
        topic = wanted.AlterReplicaLogDirTopic(name=topic_partition.topic, partitions=[topic_partition.partition])
        await self._client.ask(
            broker.name, ALTER_REPLICA_LOG_DIRS, request(dirs=[wanted(path=log_dir, topics=[topic])])
        )

    async def settle(self) -> None:
        """Check, once all is mended, that every move ends, and each log lies in one directory."""
        end_s = self._cluster.loop.time() + SETTLE_S_MAX
        while any(self._moves(broker) for broker in self._cluster.brokers) and self._cluster.loop.time() < end_s:
            await asyncio.sleep(0.1)
        for broker in self._cluster.brokers:
            for topic_partition in self._moves(broker):
                self._history.violation(f"{broker.name} still moves {topic_partition}")
            self._check(broker)

    def _moves(self, broker: SimulatedBroker) -> list[TopicPartition]:
        return list(broker.node.handler_environment.logs.moves.under_way) if broker.node is not None else []

    def _check(self, broker: SimulatedBroker) -> None:
        found: dict[TopicPartition, list[str]] = {}
        for directory, topic_partition in broker.logs_on_disk():
            found.setdefault(topic_partition, []).append(directory)
        for partition in broker.partitions():
            directories = found.get(partition.topic_partition, [])
            if directories != [partition.log.directory]:
                what = f"{partition.topic_partition} in {partition.log.directory}; {directories} are there"
                self._history.violation(f"{broker.name} has {what}")
