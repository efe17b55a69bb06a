"""Kills the broker that leads a partition, as kill -9 does, and watches what becomes of the partition, for demo.py."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from flights import LOG_LEVEL, TOPIC, Publisher

LOOK_SECONDS: Final = 0.01
ANSWER_SECONDS_MAX: Final = 0.25
# To all brokers, so that there is one to ask when another dies.
STAYS_CONNECTED: Final = {
    "enable.sparse.connections": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}
WATCH_SECONDS_MAX: Final = 60.0
NOBODY: Final = -1


class Event(NamedTuple):
    """What happened, and how long after the kill."""

    after_s: float
    what: str


class Failover(threading.Thread):
    """Kills the leader of the busiest partition once, and notes what the brokers tell of it from then on."""

    def __init__(self, bootstrap: str, publisher: Publisher, pid_of: Callable[[int], int]) -> None:
        super().__init__(name="failover", daemon=True)
        self.events: list[Event] = []
        self.failure: str | None = None
        self.stopping = threading.Event()
        self.partition = max(publisher.by_partition, key=publisher.by_partition.__getitem__)
        self._publisher = publisher
        self._pid_of = pid_of
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **STAYS_CONNECTED, "log_level": LOG_LEVEL})

    @property
    def done(self) -> bool:
        """Whether the partition is as it was before, and records that were sent after the kill are acknowledged."""
        return not self.is_alive() and self.ident is not None

    @property
    def name_of_partition(self) -> str:
        """For people."""
        return f"{TOPIC}-{self.partition}"

    def run(self) -> None:
        """The thread."""
        try:
            self._watch()
        except (KafkaException, OSError) as error:
            self.failure = f"the watch over {self.name_of_partition}: {error}"

    def _watch(self) -> None:
        leader, in_sync = self._look()
        full = len(in_sync)
        self._publisher.watched = self.partition
        killed_at = self._publisher.watched_from = time.time()
        os.kill(self._pid_of(leader), signal.SIGKILL)
        self._note(killed_at, f"broker {leader}, which led {self.name_of_partition}, was killed (SIGKILL)")
        # One broker may hear of a change later than another: what was told before is not told again.
        told = {(leader, in_sync)}
        acknowledged = False
        while not self.stopping.wait(LOOK_SECONDS):
            if time.time() - killed_at > WATCH_SECONDS_MAX:
                self.failure = f"{self.name_of_partition} was not as before {WATCH_SECONDS_MAX:.0f} s after the kill"
                return
            now = self._look()
            if now not in told:
                self._note(killed_at, f"leader {_name(now[0])}, in sync {', '.join(map(str, now[1]))}")
                told.add(now)
            if not acknowledged and self._publisher.watched_acknowledged_at is not None:
                after_s = self._publisher.watched_acknowledged_at - killed_at
                self.events.append(Event(after_s, "the first record that was sent after the kill was acknowledged"))
                acknowledged = True
            if acknowledged and now[0] not in (leader, NOBODY) and len(now[1]) == full:
                return

    def _look(self) -> tuple[int, tuple[int, ...]]:
        """Leader and replicas in sync."""
        while True:
            try:
                part = (
                    self._admin.list_topics(TOPIC, timeout=ANSWER_SECONDS_MAX).topics[TOPIC].partitions[self.partition]
                )
            except KafkaException:
                if self.stopping.is_set():
                    raise
                continue  # It asked the one that is dead.
            return part.leader, tuple(sorted(part.isrs))

    def _note(self, killed_at: float, what: str) -> None:
        self.events.append(Event(time.time() - killed_at, what))


def _name(leader: int) -> str:
    return "none" if leader == NOBODY else f"broker {leader}"
