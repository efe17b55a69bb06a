"""Tells the metadata which logs of this broker failed, so that their partitions go on without it.

One write at a time carries all that was said meanwhile. Nothing is tried again here: the replica manager says it once
more as long as the metadata shows that it was not heard.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping

from barnabas_core.topic_partition import TopicPartition


class Resignations:
    """`resign` is the controller's; `spawn` runs a coroutine beside everything else."""

    def __init__(
        self,
        resign: Callable[[Mapping[TopicPartition, int]], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._resign = resign
        self._spawn = spawn
        self._failed_epochs: dict[TopicPartition, int] = {}
        self._writes = False

    def propose(self, failed_epochs: Mapping[TopicPartition, int]) -> None:
        """These logs failed, each in a leader epoch (-1: before all)."""
        self._failed_epochs.update(failed_epochs)
        if not self._writes:
            self._writes = True
            self._spawn(self._write())

    async def _write(self) -> None:
        try:
            while self._failed_epochs:
                failed_epochs, self._failed_epochs = self._failed_epochs, {}
                await self._resign(failed_epochs)
        finally:
            self._writes = False
