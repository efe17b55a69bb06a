"""How long a coordinator takes to know what a large partition of `__consumer_offsets` says."""

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.cimpl import TopicPartition

from bench import raw_requests
from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.processes import rss_mb
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed, ServerProcess

GROUP: Final = "readers"
TOPIC: Final = "read"
SERVED_SECONDS_MAX: Final = 120.0
COORDINATOR_SECONDS_MAX: Final = 120.0
PAUSE_S: Final = 0.1
COMMITS_BETWEEN_LOOKS: Final = 20


@dataclass(frozen=True, slots=True)
class OffsetsLoaded:
    """One group commits `partitions` offsets again and again; then the broker starts anew."""

    log_bytes: int
    partitions: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """From the start of the command until the group's offset is told, and resident memory after a while of rest."""
        server, folder = stand.brokers.fresh(peer)
        try:
            server.start()
            create(server.bootstrap, [TOPIC], self.partitions)
            self._commit(server, folder)
            server.stop()
            served_s = _served_seconds(server)
            time.sleep(stand.limits.settle_s)
            return {"served_s": served_s, "rss_mb": rss_mb(server.pid)}
        except (ServerFailed, KafkaException) as failure:
            raise NotRun(str(failure)[-500:]) from None
        finally:
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _commit(self, server: ServerProcess, folder: Path) -> None:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP, "log_level": 0})
        try:
            number = 0
            while _log_bytes(folder) < self.log_bytes:
                for _ in range(COMMITS_BETWEEN_LOOKS):
                    number += 1
                    offsets = [TopicPartition(TOPIC, partition, number) for partition in range(self.partitions)]
                    _commit_patiently(consumer, offsets)
        finally:
            consumer.close()


def _commit_patiently(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Apache Kafka says NOT_COORDINATOR until its topic of offsets, which the first commit makes, has leaders."""
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/__consumer_offsets-*/*.log"))


def _served_seconds(server: ServerProcess) -> float:
    served: list[float | None] = []
    waiter = threading.Thread(
        target=lambda: served.append(
            raw_requests.wait_for_committed_offset(server.port, GROUP, TOPIC, SERVED_SECONDS_MAX)
        )
    )
    begun_s = time.monotonic()
    waiter.start()
    server.start()
    waiter.join()
    if served[0] is None:
        raise NotRun(f"no committed offset within {SERVED_SECONDS_MAX:.0f} s of the start")
    return served[0] - begun_s
