"""A consumer that reads from a slow disk beside a producer: the producer's round trips.

The disk is made slow for the broker alone, by its control group (cgroup v1, as root); the topic's files are dropped
from the page cache first. If that is not possible, the row is not run.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.scenarios.pulses import produce_round_trips
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed

GROUPS: Final = Path("/sys/fs/cgroup/blkio")
RECORD_BYTES: Final = 100_000
IN_FLIGHT_MAX: Final = 200
FILL_SECONDS_MAX: Final = 30.0


@contextmanager
def slow_disk(pid: int, folder: Path, bytes_a_s: int) -> Iterator[None]:
    """Limit the bytes a second that the process reads from the device under `folder`."""
    device = os.stat(folder).st_dev
    group = GROUPS / f"bench-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
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
    """Drop all files of the folder from the page cache, once they are on the disk."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ColdConsumer:
    """A consumer of `megabytes` at `megabytes_a_s`, while small records are written one after the other."""

    megabytes: int
    megabytes_a_s: int = 20

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure round trips for as long as the consumer reads."""
        server, folder = stand.brokers.fresh(peer)
        try:
            server.start()
            create(server.bootstrap, ["cold", "beside"], 1)
            stand.status.step(f"{self.megabytes} MB are written")
            self._fill(server.bootstrap)
            (logs,) = folder.rglob("cold-0")
            drop_from_page_cache(logs)
            stand.status.step(f"{self.megabytes} MB are read")
            with slow_disk(server.pid, logs, self.megabytes_a_s * 1_000_000), Reader(server.bootstrap) as reader:
                until = reader.goes_on_until(self.megabytes * 1_000_000, self._seconds_max)
                trips = produce_round_trips(server.port, "beside", 1, until)
                return {**trips, "read_mb_per_s": reader.bytes_per_s() / 1e6}
        except ServerFailed as failure:
            raise NotRun(str(failure)[-500:]) from None
        finally:
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _seconds_max(self) -> float:
        """Return the time for a broker that reads at half the disk's speed; then its rate until that time counts."""
        return 2 * self.megabytes / self.megabytes_a_s

    def _fill(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        deadline = time.monotonic() + FILL_SECONDS_MAX
        for _ in range(self.megabytes * 1_000_000 // RECORD_BYTES):
            producer.produce("cold", os.urandom(RECORD_BYTES), partition=0)
            while len(producer) > IN_FLIGHT_MAX:
                producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise NotRun(f"{FILL_SECONDS_MAX:.0f} s were too short to write {self.megabytes} MB")
        if producer.flush(FILL_SECONDS_MAX):
            raise NotRun(f"not all of {self.megabytes} MB was acknowledged")


class Reader:
    """A context: a consumer in a thread that reads the topic from its start until the context ends."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "log_level": 0})
        self._consumer.assign([TopicPartition("cold", 0, 0)])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.monotonic()
        self._newest = (0, 0.0)
        """The bytes so far, and the seconds until the last of them."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def goes_on_until(self, bytes_max: int, seconds_max: float) -> Callable[[], bool]:
        """Return a function that is true until this much was read, or the time is over."""
        deadline = self._began_s + seconds_max
        return lambda: self._newest[0] < bytes_max and time.monotonic() < deadline

    def bytes_per_s(self) -> float:
        """Return the rate until the last record. Raises NotRun if none came."""
        got_bytes, took_s = self._newest
        if not got_bytes:
            raise NotRun("the consumer got no record")
        return got_bytes / took_s

    def _run(self) -> None:
        while not self._ending.is_set():
            some = self._consumer.consume(100, 0.5)
            got_bytes = sum(len(each.value() or b"") for each in some if each.error() is None)
            if got_bytes:
                self._newest = (self._newest[0] + got_bytes, time.monotonic() - self._began_s)
