"""What the console costs: its processor time and memory, its requests to the brokers, and what a producer notices."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from confluent_kafka import Producer

from harness.barnabas_server import resident_bytes
from harness.cluster import BarnabasCluster
from harness.deadline import PATIENCE_S

PACE_S: Final = 0.005
LOAD_EVERY_S: Final = 5.0
REQUESTS: Final = re.compile(r'^kafka_network_requestmetrics_requests_total\{request="(\w+)"\} (\S+)$', re.MULTILINE)
OF_CLUSTER: Final = ("Produce", "Fetch")
"""The requests of the producer and of replicas, which are not the console's."""


class Figures(NamedTuple):
    """The figures of one span; those of the console are 0 without one."""

    processor_percent: float
    memory_mib: float
    requests_a_minute: float
    median_ms: float
    p99_ms: float
    longest_ms: float

    def __str__(self) -> str:
        return (
            f"{self.processor_percent:.0f} % of a processor, {self.memory_mib:.0f} MiB, "
            f"{self.requests_a_minute:,.0f} requests a minute; a producer waits {self.median_ms:.1f} ms (median), "
            f"{self.p99_ms:.1f} ms (99 %), {self.longest_ms:.0f} ms (longest)"
        )


def figures(
    cluster: BarnabasCluster, seconds: float, console_pid: int | None = None, load: Callable[[], object] = int
) -> Figures:
    """Measure for so many seconds, while `load` is called every 5 s in a thread, as an open page would."""
    spent_s, requests, began = _spent_s(console_pid), _requests(cluster), time.perf_counter()
    with _in_a_thread(load):
        waits_ms = sorted(_waits_ms(cluster.bootstrap, seconds))
    took_s = time.perf_counter() - began
    cuts = quantiles(waits_ms, n=100)
    return Figures(
        processor_percent=100 * (_spent_s(console_pid) - spent_s) / took_s,
        memory_mib=0.0 if console_pid is None else resident_bytes(console_pid) / (1 << 20),
        requests_a_minute=60 * (_requests(cluster) - requests) / took_s,
        median_ms=cuts[49],
        p99_ms=cuts[98],
        longest_ms=waits_ms[-1],
    )


def _waits_ms(bootstrap: str, seconds: float) -> Iterator[float]:
    """Send a record each PACE_S with acks=all; yield how long each acknowledgement took."""
    waits: list[float] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        sent_s = time.perf_counter()
        next_s = sent_s + PACE_S
        producer.produce(
            "flights", b"paced", on_delivery=lambda *_, at=sent_s: waits.append(1000 * (time.perf_counter() - at))
        )
        while (rest_s := next_s - time.perf_counter()) > 0:
            producer.poll(rest_s)
    assert producer.flush(PATIENCE_S) == 0
    yield from waits


@contextmanager
def _in_a_thread(load: Callable[[], object]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            load()
            stop.wait(LOAD_EVERY_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _spent_s(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _requests(cluster: BarnabasCluster) -> float:
    pages = [cluster.page(number, "/metrics")[1] for number in cluster.running]
    found = [(name, float(count)) for each in pages for name, count in REQUESTS.findall(each)]
    return sum(count for name, count in found if name not in OF_CLUSTER)
