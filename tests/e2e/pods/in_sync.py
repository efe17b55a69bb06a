"""Finds the lowest number of replicas in sync of a partition while brokers fail or restart.

with InSync(castle.bootstrap) as in_sync:
    castle.crash("castle-broker-0")
assert in_sync.fewest >= 2
"""

from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException

from harness.stock_client import StockClient

REPLICAS: Final = 3
POLL_S: Final = 0.2
ANSWER_SECONDS_MAX: Final = 30.0


class InSync:
    """A watch on the partitions with three replicas; others are ignored."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = StockClient(bootstrap).admin
        self._ending = Event()
        self._looking = Thread(target=self._run)
        self.fewest = REPLICAS
        self.looks = 0
        """The number of looks that were answered."""
        self.failed_looks = 0

    def __enter__(self) -> Self:
        self.look()
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._looking.join()
        self.look()

    def look(self) -> None:
        """Look once, at the state that a broker reports now."""
        try:
            topics = self._admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics.values()
        except KafkaException:
            self.failed_looks += 1  # The broker that was asked has shut down.
            return
        self.looks += 1
        rows = [row for topic in topics for row in topic.partitions.values() if len(row.replicas) == REPLICAS]
        self.fewest = min([self.fewest, *(len(row.isrs) for row in rows)])

    def _run(self) -> None:
        while not self._ending.wait(POLL_S):
            self.look()
