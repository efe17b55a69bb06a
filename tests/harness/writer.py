"""A client that writes all the time, while brokers stop and metadata is lost."""

from threading import Event, Thread

from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient


class Writer:
    """A writer of numbers to one partition, which sends each hundred after the one before is acknowledged.

    It ends when it is stopped. Brokers may be away for `patience_s`.
    """

    def __init__(self, client: StockClient, topic: str, partition: int, patience_s: float = PATIENCE_S) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._topic = topic
        self._partition = partition
        self._patience_s = patience_s
        self._stopping = Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for_more(self) -> None:
        """Wait until numbers are acknowledged that were not yet sent before this call."""
        written = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) > written + 300)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                values = [b"%d" % (len(self.acknowledged) + offset) for offset in range(100)]
                self._client.write(self._topic, values, self._partition, patience_s=self._patience_s)
                self.acknowledged += values
        except Exception as error:
            self._failure = error
