"""Tells the metadata of logs here with which their partitions cannot go on: they failed, lack records, or are ahead.

One write at a time carries all that was said meanwhile. Nothing is tried again here: the replica manager says it once
more as long as the metadata shows that it was not heard.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Generic, TypeVar

from barnabas_core.topic_partition import TopicPartition

Found = TypeVar("Found")
"""What is said of a partition."""


class OfflineReports(Generic[Found]):
    """`resign` is the controller's; `spawn` runs a coroutine beside everything else."""

    def __init__(
        self,
        resign: Callable[[Mapping[TopicPartition, Found]], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._resign = resign
        self._spawn = spawn
        self._found: dict[TopicPartition, Found] = {}
        self._writes = False

    def propose(self, found: Mapping[TopicPartition, Found]) -> None:
        """Say this of these partitions: in which leader epoch their logs failed (-1: before all), for one."""
        self._found.update(found)
        if not self._writes:
            self._writes = True
            self._spawn(self._write())

    async def _write(self) -> None:
        try:
            while self._found:
                found, self._found = self._found, {}
                await self._resign(found)
        finally:
            self._writes = False
