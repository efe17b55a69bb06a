"""Start, memory and many topics: each run has a new server in an empty folder."""

import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from bench import raw_requests
from bench.clients.job import Job, NotRun
from bench.metrics import Measurement
from bench.processes import rss_mb
from bench.scenarios.load import PARTITIONS, Produce
from bench.scenarios.pulses import produce_round_trips
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed, ServerProcess

START_SECONDS_MAX: Final = 60.0
MANY_START_SECONDS_MAX: Final = 300.0
POLL_S: Final = 1.0
SAMPLE_S: Final = 0.05
FILES_MAX: Final = 20_000
KAFKA_FILES: Final = 100_000
"""The open files that Apache Kafka recommends for many partitions."""
FIVE_BYTES: Final = bytes((0, 0, 3, 232, 0))
"""The first five bytes of a request of 1,000."""


@contextmanager
def _fresh(stand: Stand, peer: str) -> Iterator[ServerProcess]:
    server, folder = stand.brokers.fresh(peer)
    try:
        yield server
    except ServerFailed as failure:
        raise NotRun(str(failure)[-500:]) from None
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _start_seconds(server: ServerProcess, topic: str, seconds_max: float = START_SECONDS_MAX) -> float:
    """Return the time from the start of the command to the first acknowledged record in an existing topic."""
    started = time.monotonic()
    server.launch()
    return _await_record(server, topic, seconds_max) - started


def _await_record(server: ServerProcess, topic: str, seconds_max: float) -> float:
    """Return the time at which a record was acknowledged (monotonic)."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        acknowledged = raw_requests.wait_for_acknowledgement(server.port, topic, POLL_S)
        if acknowledged is not None:
            return acknowledged
        if not server.running:
            raise NotRun(f"it ended by itself:\n{server.log_end()}")
    raise NotRun(f"no record acknowledged within {seconds_max:.0f} s")


def _raise_open_files(files: int) -> None:
    """Raise the limit of this process and its children; the hard limit stays if it may not be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), max(hard, files)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, files), hard))


@dataclass(frozen=True, slots=True)
class StartAndIdle:
    """The time from the start to the first acknowledged record, and resident memory after a rest."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Make the topic in a first incarnation of the server, and measure the second one."""
        with _fresh(stand, peer) as server:
            server.start()
            create(server.bootstrap, ["first"], 1)
            server.stop()
            start_s = _start_seconds(server, "first")
            time.sleep(stand.limits.settle_s)
            return {"start_s": start_s, "rss_mb": rss_mb(server.pid)}


@dataclass(frozen=True, slots=True)
class LoadedMemory:
    """The peak of resident memory while producers (1 KB records, acks=all) and a consumer work at full speed."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Sample the memory every 50 ms."""
        client = stand.clients.librdkafka()
        seconds = stand.limits.load_s
        with _fresh(stand, peer) as server, ExitStack() as clients:
            server.start()
            create(server.bootstrap, ["load"], PARTITIONS)
            produce = Produce(client="librdkafka", record_bytes=1000, batch_bytes=16_384, codec="none", acks="all")
            consume = Job(
                mode="consume",
                topic="load",
                partitions=PARTITIONS,
                record_bytes=1000,
                records_max=10**9,
                seconds_max=seconds,
            )
            jobs = (produce.job("load", seconds, 4 * stand.limits.run_bytes_max), consume)
            running = [clients.enter_context(_ended(client.start(job, server.bootstrap))) for job in jobs]
            most = 0.0
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and any(each.poll() is None for each in running):
                most = max(most, rss_mb(server.pid))
                time.sleep(SAMPLE_S)
            if any(each.poll() for each in running):
                raise NotRun("a client failed under load")
            return {"rss_mb": most}


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class IdleConnections:
    """Resident memory with connections that have each had one response and then rest."""

    connections: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure also the time to open all connections one after the other."""
        _raise_open_files(FILES_MAX)
        request = raw_requests.api_versions_request()
        with _fresh(stand, peer) as server, ExitStack() as open_sockets:
            server.start()
            started = time.monotonic()
            for _ in range(self.connections):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=START_SECONDS_MAX)
                open_sockets.enter_context(connection)
                connection.sendall(request)
                raw_requests.receive(connection)
            connect_s = time.monotonic() - started
            time.sleep(stand.limits.settle_s)
            return {"connect_s": connect_s, "rss_mb": rss_mb(server.pid)}


@dataclass(frozen=True, slots=True)
class SlowConnections:
    """Round trips of one client beside many that have each sent five bytes of a request."""

    connections: int
    round_trips: int = 500

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure also resident memory at the end."""
        _raise_open_files(FILES_MAX)
        with _fresh(stand, peer) as server, ExitStack() as open_sockets:
            server.start()
            create(server.bootstrap, ["beside"], 1)
            for _ in range(self.connections):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=START_SECONDS_MAX)
                open_sockets.enter_context(connection)
                connection.sendall(FIVE_BYTES)
            return {**produce_round_trips(server.port, "beside", self.round_trips), "rss_mb": rss_mb(server.pid)}


@dataclass(frozen=True, slots=True)
class ManyTopics:
    """Topics of six partitions: the time to create them all, memory after that, and the time to restart with them."""

    topics: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Both times end with a record acknowledged in the last topic: brokers make logs after they have responded."""
        _raise_open_files(KAFKA_FILES)
        names = [f"many-{number}" for number in range(self.topics)]
        with _fresh(stand, peer) as server:
            server.start()
            started = time.monotonic()
            create(server.bootstrap, names, PARTITIONS)
            create_s = _await_record(server, names[-1], MANY_START_SECONDS_MAX) - started
            time.sleep(stand.limits.settle_s)
            created_rss_mb = rss_mb(server.pid)
            server.stop()
            start_s = _start_seconds(server, names[-1], MANY_START_SECONDS_MAX)
            return {"create_s": create_s, "rss_mb": created_rss_mb, "start_s": start_s}
