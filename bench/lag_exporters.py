"""`barnabas lag-exporter` beside Burrow (Debian's package) on one cluster: memory, CPU, and how long a read takes.

`python -m bench.lag_exporters --topics 300 --groups 400` prints a table, and on stderr how far it is. The cluster is
one node of Apache Kafka 3.9: Burrow 1.2.1 understands no later one. Each group has commits in one topic. All groups
commit again in each interval, and each reader must tell what was committed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Producer
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from bench import topics
from bench.burrow import Burrow, old_kafka
from bench.machine import commit, load_average
from bench.processes import cpu_seconds
from harness.ask import ask
from harness.barnabas_server import peak_resident_bytes
from harness.deadline import wait_for
from harness.running_exporter import RunningExporter
from harness.server_process import ServerProcess

PARTITIONS: Final = 10
RECORDS: Final = 100
INTERVAL_S: Final = 15
ROUNDS: Final = 4
READS: Final = 5
FIND_VERSION: Final = 1
COMMIT_VERSION: Final = 2
SECONDS_MAX: Final = 300.0
Lags = Mapping[str, int]


class Reader(Protocol):
    """A program that reads lags and is measured."""

    process: ServerProcess

    def start(self) -> object: ...
    def lags(self) -> Lags: ...
    def read(self) -> object: ...
    def close(self) -> None: ...


class Ours:
    """The lag exporter."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._exporter = RunningExporter(bootstrap, folder, f"--interval={INTERVAL_S}")
        self.process = self._exporter.process

    def start(self) -> None:
        self._exporter.start()

    def lags(self) -> Lags:
        found = self._exporter.samples().get("kafka_consumergroup_lag_sum", [])
        return {labels["consumergroup"]: int(value) for labels, value in found}

    def read(self) -> object:
        """Read the page as Prometheus does."""
        return self._exporter.page("/metrics")

    def close(self) -> None:
        self.process.close()


class Figures(NamedTuple):
    """The figures of one reader."""

    what: str
    peak_bytes: int
    cpu_s_a_minute: float
    read_s: float

    def row(self) -> str:
        cells = (
            self.what,
            f"{self.peak_bytes / 2**20:.0f} MiB",
            f"{self.cpu_s_a_minute:.1f} s",
            f"{self.read_s:.2f} s",
        )
        return f"| {' | '.join(cells)} |"


HEAD: Final = "| reader | peak RSS | CPU a minute | all groups read in |\n|---|---|---|---|"


class Groups:
    """Groups without members, each of which has committed the same offset in all partitions of its topic."""

    def __init__(self, port: int, names: list[str], groups: int) -> None:
        self._port = port
        self._topics = {f"group-{number:05d}": names[number % len(names)] for number in range(groups)}
        self._offset = 0
        # A request for a coordinator creates the offsets topic if there is none yet.
        for group in self._topics:
            ask(port, FindCoordinatorRequest(key=group, key_type=0), FIND_VERSION, SECONDS_MAX)

    def __len__(self) -> int:
        return len(self._topics)

    def commit(self) -> Lags:
        """Commit one record further in all groups; return the lags that they then have."""
        self._offset += 1
        for group, topic in self._topics.items():
            wait_for(partial(self._commit, group, topic), seconds_max=SECONDS_MAX)
        return dict.fromkeys(self._topics, PARTITIONS * (RECORDS - self._offset))

    def _commit(self, group: str, topic: str) -> bool:
        """True if the coordinator accepted the commit: at first there is none."""
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        committed = [
            of_topic.OffsetCommitRequestPartition(
                partition_index=number, committed_offset=self._offset, committed_metadata=""
            )
            for number in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[of_topic(name=topic, partitions=committed)],
        )
        (answer,) = ask(self._port, request, COMMIT_VERSION, SECONDS_MAX).topics
        return all(each.error_code == 0 for each in answer.partitions)


def measured(what: str, reader: Reader, groups: Groups) -> Figures:
    """Measure from the reader's start on, while all groups commit: Burrow knows only groups that it has seen commit."""
    began_s = time.monotonic()
    reader.start()
    with closing(reader):
        while not _tells(reader, groups.commit()):
            _say(f"{what}: not all lags after {time.monotonic() - began_s:.0f} s")
        pid, window_s = reader.process.pid, time.monotonic()
        cpu_before_s = cpu_seconds(pid)
        told = [_tells(reader, groups.commit()) for _ in range(ROUNDS)]
        cpu_s, minutes = cpu_seconds(pid) - cpu_before_s, (time.monotonic() - window_s) / 60
        _say(f"{what}: {told.count(True)} of {ROUNDS} rounds told in time")
        return Figures(what, peak_resident_bytes(pid), cpu_s / minutes, _read_s(reader))


def _read_s(reader: Reader) -> float:
    """Return the median of several reads, since other programs run on the machine, too."""
    taken_s = []
    for _ in range(READS):
        began_s = time.monotonic()
        reader.read()
        taken_s.append(time.monotonic() - began_s)
    return statistics.median(taken_s)


def _tells(reader: Reader, expected: Lags) -> bool:
    """True if the reader reports these lags after two intervals: Burrow repeats older lags for some seconds."""
    time.sleep(2 * INTERVAL_S)
    return reader.lags() == expected


def _write(bootstrap: str, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "log_level": 0})
    for name in names:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(name, b"record", partition=partition)
        producer.poll(0)
        producer.flush(SECONDS_MAX)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=300, help=f"of {PARTITIONS} partitions each")
    parser.add_argument("--groups", type=int, default=400, help=f"of {PARTITIONS} committed offsets each")
    options = parser.parse_args()
    names = [f"topic-{number:05d}" for number in range(options.topics)]
    told = (commit(), f"{options.topics} topics, {options.groups} groups", f"load {load_average()}")
    print(f"{', '.join(told)}\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        server = old_kafka(Path(place))
        with closing(server):
            server.start()
            topics.create(server.bootstrap, names, PARTITIONS)
            _write(server.bootstrap, names)
            _say("topics are there")
            groups = Groups(server.port, names, options.groups)
            print(measured("barnabas lag-exporter", Ours(server.bootstrap, Path(place)), groups).row(), flush=True)
            print(measured("Burrow", Burrow(server.bootstrap, Path(place), INTERVAL_S), groups).row(), flush=True)


if __name__ == "__main__":
    main()
