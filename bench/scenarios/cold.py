"""A consumer that reads from a slow disk beside a producer: the producer's round trips.

The disk is made slow for the broker alone, by its control group (cgroup v1, as root); what it had in the page cache of
the topic's files is dropped first. Where that cannot be done the row is not run.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.scenarios.pulses import produce_round_trips
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed

GROUPS: Final = Path("/sys/fs/cgroup/blkio")
RECORD_BYTES: Final = 100_000
READ_S_MAX: Final = 300.0


@contextmanager
def slow_disk(pid: int, folder: Path, bytes_a_s: int) -> Iterator[None]:
    """That process reads so much a second from the device under `folder`."""
    device = os.stat(folder).st_dev
    group = GROUPS / f"bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "blkio.throttle.read_bps_device").write_text(f"{os.major(device)}:{os.minor(device)} {bytes_a_s}")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise NotRun(f"the disk cannot be slowed down: {error}") from None
    try:
        yield
    finally:
        for each in (group / "cgroup.procs").read_text().split():
            (GROUPS / "cgroup.procs").write_text(each)
        group.rmdir()


def drop_from_page_cache(folder: Path) -> None:
    """All files in it, once they are on the disk."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ColdConsumer:
    """`megabytes` at `megabytes_a_s`, while small records are written one after the other."""

    megabytes: int
    megabytes_a_s: int = 20

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Round trips for as long as the consumer reads."""
        server, folder = stand.brokers.fresh(peer)
        try:
            server.start()
            create(server.bootstrap, ["cold", "beside"], 1)
            self._fill(server.bootstrap)
            (logs,) = folder.rglob("cold-0")
            drop_from_page_cache(logs)
            with slow_disk(server.pid, logs, self.megabytes_a_s * 1_000_000):
                reader = threading.Thread(target=self._read, args=(server.bootstrap,))
                began_s = time.monotonic()
                reader.start()
                trips = produce_round_trips(server.port, "beside", 100, reader.is_alive)
                return {**trips, "read_mb_per_s": self.megabytes / (time.monotonic() - began_s)}
        except ServerFailed as failure:
            raise NotRun(str(failure)[-500:]) from None
        finally:
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _fill(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        for _ in range(self.megabytes * 1_000_000 // RECORD_BYTES):
            producer.produce("cold", os.urandom(RECORD_BYTES), partition=0)
            while len(producer) > 200:
                producer.poll(0.1)
        producer.flush()

    def _read(self, bootstrap: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "log_level": 0})
        consumer.assign([TopicPartition("cold", 0, 0)])
        wanted, until_s = self.megabytes * 1_000_000 // RECORD_BYTES, time.monotonic() + READ_S_MAX
        while wanted > 0 and time.monotonic() < until_s:
            wanted -= len(consumer.consume(100, 0.5))
        consumer.close()
