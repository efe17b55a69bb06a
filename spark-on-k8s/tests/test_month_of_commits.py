"""An archive of 50 partitions with a commit each minute for a month: a run begins soon, and needs little memory."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_archive_tables import join, write, writer_at

from barnabas_jobs.files.archive_tables import ROWS, rows_uri
from barnabas_jobs.files.table_writer import SNAPSHOTS_KEPT, TableWriter
from barnabas_jobs.jobs.compact import ROWS_OF_FILE, join_rows
from barnabas_jobs.planning.archived import Commit, GroupOffset, Head, OffsetRange, PartitionRange, Tail
from harness.soak import IS_SOAK, size, took

MONTH: Final = 43_200
PARTITIONS: Final = 50
PER_MINUTE: Final = 12_345
LAST: Final = size(10, SNAPSHOTS_KEPT)
"""The number of commits that are made one by one; the rows of those before them are in joined files."""
COMMITS: Final = size(200, MONTH)
CONFIG: Final = {"cleanup.policy": "delete", "retention.ms": "604800000", "max.message.bytes": "1048588"}
JOINED: Final = ROWS_OF_FILE // PARTITIONS
METADATA_BYTES_MAX: Final = 5_000_000
COMMIT_SECONDS_MAX: Final = 5.0
START_SECONDS_MAX: Final = 10.0
START_MIB_MAX: Final = 256
VERIFY_MIB_MAX: Final = 320
"""With PySpark, which a run that archives imports only afterwards."""
TABLES: Final = r"""
import re, sys, time
began_s = time.monotonic()
from barnabas_jobs.files.archive_tables import ArchiveTables
from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.files.table_writer import begin
from barnabas_jobs.planning.archived import Identity
folder = sys.argv[1]
tables = ArchiveTables(folder, {}, "barnabas", LocalFolder(folder))
"""
PEAK: Final = r"""
took_s = time.monotonic() - began_s
# The peak in `resource` also counts the memory of the process that started this one.
peak = re.search(r"VmHWM:[^0-9]+([0-9]+) kB", open("/proc/self/status").read())
print(number, took_s, int(peak[1]) // 1024)
"""
BEGIN: Final = r"""
writer = begin(tables, Identity("flights", "id-1", "cluster-1"), time.time)
writer.recover_rows()
writer.remove_left_over(writer.run_folders(), 50, {})
number = writer.number
"""
VERIFY: Final = r"""
import pyspark.sql
found = tables.topic("flights")
number = sum(found.records_by_partition().values())
assert len(found.spans()) == 50 and found.paths()
"""
"""What `verify` asks of an archive before Spark compares it."""


@pytest.mark.timeout(3600)
def test_a_run_begins_soon_after_a_month_of_commits_and_metadata_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # The disk is not what is measured.
    monkeypatch.setattr("barnabas_jobs.files.store.sync", lambda _: None)
    writer = writer_at(tmp_path)
    before_the_last(writer)
    metadata = 0
    began_s = time.monotonic()
    for number in range(COMMITS - LAST, COMMITS):
        began_s = time.monotonic()
        commit_with_a_file(writer, number)
        metadata = max(metadata, metadata_bytes(writer))
    took("the last commit", time.monotonic() - began_s, COMMIT_SECONDS_MAX)
    snapshots = len(writer.data.snapshots())
    print(f"metadata: {metadata} bytes with {snapshots} snapshots")
    assert metadata / snapshots * SNAPSHOTS_KEPT < METADATA_BYTES_MAX
    number, seconds, mebibytes = in_a_new_process(tmp_path, BEGIN)
    assert number == COMMITS
    took("the start of a run", seconds, START_SECONDS_MAX)
    print(f"memory at the start of a run: {mebibytes} MiB")
    assert mebibytes < START_MIB_MAX or not IS_SOAK
    number, seconds, mebibytes = in_a_new_process(tmp_path, VERIFY)
    assert number == COMMITS * PARTITIONS * PER_MINUTE
    print(f"verify: {seconds:.1f} s and {mebibytes} MiB before Spark compares")
    assert mebibytes < VERIFY_MIB_MAX or not IS_SOAK
    found = writer.archived()
    assert found.ends(commit=COMMITS - 2) == dict.fromkeys(range(PARTITIONS), (COMMITS - 1) * PER_MINUTE)
    assert found.records_by_partition()[PARTITIONS - 1] == COMMITS * PER_MINUTE
    join(writer.data, MONTH)
    join_rows(writer.ranges)
    writer.data.refresh()
    assert len(writer.data.snapshots()) == min(LAST + 2, SNAPSHOTS_KEPT)
    assert len(writer.archived().files()) == 1
    assert in_a_new_process(tmp_path, BEGIN)[0] == COMMITS


def metadata_bytes(writer: TableWriter) -> int:
    """Return the size of the data table's metadata file."""
    return Path(writer.data.metadata_location.removeprefix("file://")).stat().st_size


def commit_with_a_file(writer: TableWriter, number: int) -> None:
    """Commit the ranges of one minute, and one file with one of its records."""
    made = commit(number)
    writer.commit(made, write(writer, made.run, [OffsetRange(0, number, number + 1)]), PARTITIONS, CONFIG)


def commit(number: int) -> Commit:
    """Return a commit with new records in all partitions, and with four groups."""
    start, end = number * PER_MINUTE, (number + 1) * PER_MINUTE
    ranges = tuple(
        PartitionRange(each, start, end, 12, 3_000_000_000 + number, PER_MINUTE) for each in range(PARTITIONS)
    )
    groups = tuple(GroupOffset(f"group-{each % 4}", each, end) for each in range(PARTITIONS))
    return Commit(number, f"{number:08d}-0123456789ab", number * 60_000, ranges, groups)


def before_the_last(writer: TableWriter) -> None:
    """Make the state before the last commits: their offsets in a snapshot, and their rows in joined files."""
    last = commit(COMMITS - LAST - 1)
    tails = {each.partition: Tail(each.start, each.end, each.epoch, each.checksum) for each in last.ranges}
    head = Head(number=last.number, run=last.run, committed_at_ms=0, tails=tails, topic_partitions=PARTITIONS)
    with writer.data.transaction() as transaction:
        transaction.add_files([], head.properties(writer.identity), check_duplicate_files=False)
    writer.head = head
    uris = list(joined_rows(writer, last.number + 1))
    with writer.ranges.transaction() as transaction:
        own = {"barnabas.run": last.run, "barnabas.commit": str(last.number)}
        transaction.add_files(uris, own, check_duplicate_files=False)


def joined_rows(writer: TableWriter, commits: int) -> Iterator[str]:
    """Write the rows of the first commits as `compact` joins them, and yield the names of the files."""
    for first in range(0, commits, JOINED):
        uri = rows_uri(writer.ranges, f"joined-{first}")
        path = Path(uri.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [rows(commit(number)) for number in range(first, min(commits, first + JOINED))]
        pq.write_table(pa.concat_tables(parts), path, compression="zstd")
        yield uri


def rows(made: Commit) -> pa.Table:
    """Return the rows of a commit, without its groups."""
    columns = msgspec.to_builtins(made.ranges)
    own = {"commit": made.number, "run": made.run, "committed_at": made.committed_at_ms * 1000, "groups": []}
    return pa.Table.from_pylist([{**each, **own} for each in columns], ROWS)


def in_a_new_process(folder: Path, does: str) -> tuple[int, float, int]:
    """Run Python in a new process; return its `number`, its seconds, and its memory in MiB."""
    words = [sys.executable, "-c", f"{TABLES}{does}{PEAK}", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    number, seconds, mebibytes = done.stdout.split()
    return int(number), float(seconds), int(mebibytes)
