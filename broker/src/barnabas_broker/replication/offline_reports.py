"""The reports to the metadata of logs here that failed, lack records, or are ahead of the metadata.

One write is in flight at a time, and later reports go with the next. Nothing is retried here: the replica manager
repeats a report until the metadata reflects it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Generic, TypeVar

from barnabas_core.topic_partition import TopicPartition

Found = TypeVar("Found")
"""The content of a report on a partition."""


class OfflineReports(Generic[Found]):
    """The queue of reports. `resign` is the controller's; `spawn` runs a coroutine in the background."""

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
        """Report partitions, for example with the leader epoch in which their logs failed (-1: before all)."""
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
