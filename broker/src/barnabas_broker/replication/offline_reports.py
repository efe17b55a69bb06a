"""The reports to the controller about logs that failed, may have lost records, or are ahead of the metadata.

One write is in flight at a time, and the next write includes all later reports. A failed write is not retried, because
the replica manager repeats each report until the metadata reflects it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Generic, TypeVar

from barnabas_core.topic_partition import TopicPartition

Found = TypeVar("Found")
"""The content of a report about one partition.

The content is a `LogAhead` if the replica's log is ahead of the metadata, and otherwise the leader epoch in which the
replica's log failed or may lack records.
"""


class OfflineReports(Generic[Found]):
    """The queue of one kind of report, for example the reports about failed logs.

    The queue passes the reports to the function `resign`, which changes the metadata. For example, `resign` ends the
    leadership of this broker over the partitions whose logs failed.
    """

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
        """Queue reports about logs of partitions, and write them to the metadata unless a write is in flight."""
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
