"""Debian's kcat with librdkafka 2.0.2: the oldest client that must work."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drivers.broker_under_test import KEPT_FOR_EVER
from drivers.interface import COMPRESSIONS, Client, Message
from harness.deadline import PATIENCE_S, wait_for
from harness.require import missing
from harness.server_process import ServerProcess


class Kcat:
    """The command kcat for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._command = ["kcat", "-b", bootstrap]

    def run(self, *arguments: str, standard_input: str = "") -> str:
        """Return the output of a run that must succeed."""
        command = [*self._command, *arguments]
        ran = subprocess.run(
            command, input=standard_input, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator["KcatMember"]:
        """Run a member of a group."""
        times = (
            "-X",
            "heartbeat.interval.ms=300",
            "-X",
            "auto.offset.reset=earliest",
            "-X",
            "session.timeout.ms=45000",
        )
        command = [*self._command, "-u", *times, "-G", group, topic]
        member = KcatMember(command)
        try:
            yield member
        finally:
            member.leave()


class KcatMember:
    """A kcat process in a group: it prints its assignments to standard error, and records to standard output."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.values: list[str] = []
        self.assignment: set[int] = set()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read_values, self._read_events)]
        for thread in self._threads:
            thread.start()

    def _read_values(self) -> None:
        for line in self._process.stdout or ():
            self.values.append(line.rstrip("\n"))

    def _read_events(self) -> None:
        for line in self._process.stderr or ():
            if "assigned:" in line:
                self.assignment = {int(index) for index in re.findall(r"\[(\d+)\]", line)}
            elif "revoked:" in line:
                self.assignment = set()

    def leave(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join()


@pytest.fixture
def kcat(broker: ServerProcess) -> Kcat:
    if shutil.which("kcat") is None:
        missing("kcat is not on the machine")
    return Kcat(broker.bootstrap)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_kcat_produces_and_consumes_with_every_compression(
    kcat: Kcat, librdkafka: Client, topic: str, compression: str
) -> None:
    librdkafka.create_topic(topic, 1, {})
    lines = [f"key {n}:value {n}" for n in range(100)]
    kcat.run("-P", "-t", topic, "-z", compression, "-K:", "-H", "name=header", standard_input="\n".join(lines))
    read = kcat.run("-C", "-t", topic, "-o", "beginning", "-e", "-f", "%k:%s %h\n").splitlines()
    assert read == [f"{line} name=header" for line in lines]


def test_kcat_finds_offsets_by_timestamp_and_reads_the_last_records(kcat: Kcat, librdkafka: Client, topic: str) -> None:
    librdkafka.create_topic(topic, 1, KEPT_FOR_EVER)
    librdkafka.produce(topic, [Message(b"%d" % n, timestamp_ms=1_700_000_000_000 + n) for n in range(10)])
    assert "offset 4" in kcat.run("-Q", "-t", f"{topic}:0:1700000000004")
    assert kcat.run("-C", "-t", topic, "-o", "-2", "-e").splitlines() == ["8", "9"]


def test_two_members_share_a_group_and_one_takes_over_when_the_other_leaves(
    kcat: Kcat, librdkafka: Client, topic: str
) -> None:
    librdkafka.create_topic(topic, 4, {})
    with kcat.member(topic, topic) as first:
        wait_for(lambda: first.assignment, lambda held: held == {0, 1, 2, 3})
        with kcat.member(topic, topic) as second:
            wait_for(lambda: (first.assignment, second.assignment), lambda held: list(map(len, held)) == [2, 2])
            assert first.assignment | second.assignment == {0, 1, 2, 3}
            librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 4) for n in range(40)])
            wait_for(lambda: len(first.values) + len(second.values), lambda count: count == 40)
        wait_for(lambda: first.assignment, lambda held: held == {0, 1, 2, 3})
    # Both members committed when they left.
    assert librdkafka.committed(topic, topic) == {0: 10, 1: 10, 2: 10, 3: 10}
