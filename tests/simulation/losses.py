"""An administrator who accepts losses where every replica lacks committed records, and nowhere else."""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas_broker.metadata.controller.decisions.elections import ElectionType, is_lost
from barnabas_core.topic_partition import TopicPartition
from simulation.cluster import ACCEPTED_S, SimulatedCluster

PATIENCE_S: Final = 15.0
"""The time that all other partitions have to heal."""


class Losses:
    """The losses that are accepted. `accepted` is called with each partition before."""

    def __init__(self, cluster: SimulatedCluster, accepted: Callable[[TopicPartition], object]) -> None:
        self._cluster = cluster
        self._accepted = accepted

    async def accept(self) -> None:
        """Accept the losses that the metadata has now."""
        lost = [TopicPartition(*key) for key, state in self._cluster.states().items() if is_lost(state)]
        broker = next((each for each in self._cluster.brokers if each.is_serving and each.node is not None), None)
        if not lost or broker is None or broker.node is None or broker.host is None:
            return
        for each in lost:
            self._cluster.note(f"the loss of {each} is accepted: {self._cluster.states()[each]}")
            self._accepted(each)
        controller = broker.node.handler_environment.metadata_writer
        await self._cluster.loop.spawn(broker.host, controller.elect_leaders(ElectionType.UNCLEAN, lost))

    async def accept_in_time(self) -> None:
        """Accept them once all other partitions have had their time to heal, until this is cancelled."""
        await asyncio.sleep(PATIENCE_S)
        while True:
            await self.accept()
            await asyncio.sleep(ACCEPTED_S)
