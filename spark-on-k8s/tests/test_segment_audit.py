"""One segment checked against its indexes and itself: damage is named by file and byte. No Spark runs here."""

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from made_logs import (
    FIRST_MS,
    RECORDS,
    MadeReplica,
    batch,
    records,
    sealed,
    write_log_dir,
    write_offsets,
    write_segment,
)

from barnabas_jobs.files import segment_source
from barnabas_jobs.files.segment_source import GONE, SegmentReader
from barnabas_jobs.planning.logs import batches as kinds
from barnabas_jobs.planning.logs.batches import is_being_cleaned

FLIGHTS = ("flights", 0)
SIZE = len(batch(0))
Told = tuple[str, int, str, int | None, int | None]
"""Kind, segment, suffix, position, offset."""


def told(log_dir: Path, *, deep: bool = False, compacted: str = "", broker: int = 1) -> list[Told]:
    """Return the problems that a read of all segments finds."""
    reader = SegmentReader([f"{broker}:{log_dir}"], [""], [compacted], deep)
    rows = [row for task in reader.partitions() for some in reader.read(task) for row in some.to_pylist()]
    return [
        (row["problem"], row["segment"], row["suffix"], row["position"], row["base_offset"])
        for row in rows
        if row["problem"] is not None
    ]


def patched(segment: int, suffix: str, position: int, data: bytes) -> Callable[[MadeReplica], object]:
    return lambda replica: replica.patch(segment, suffix, position, data)


def cut(segment: int, suffix: str, count: int) -> Callable[[MadeReplica], object]:
    """Return a function that cuts this many bytes from the end of a file."""

    def act(replica: MadeReplica) -> None:
        path = replica.file(segment, suffix)
        path.write_bytes(path.read_bytes()[:-count])

    return act


def as_folder(replica: MadeReplica) -> None:
    """Put a folder in the place of the log: reading it fails as on a bad disk."""
    replica.file(20, ".log").unlink()
    replica.file(20, ".log").mkdir()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (patched(20, ".log", SIZE + 80, b"?"), (kinds.BAD_CRC, 20, ".log", SIZE, 25)),
        (patched(40, ".log", SIZE + 80, b"?"), (kinds.BAD_CRC, 40, ".log", SIZE, 45)),
        (patched(20, ".log", SIZE + 16, b"\1"), (kinds.BAD_HEADER, 20, ".log", SIZE, None)),
        (patched(20, ".log", 2 * SIZE, bytes(61)), (kinds.BAD_HEADER, 20, ".log", 2 * SIZE, None)),
        (cut(20, ".log", 7), (kinds.TORN_BATCH, 20, ".log", 3 * SIZE, 35)),
        (cut(40, ".log", 7), (kinds.TORN_BATCH, 40, ".log", 3 * SIZE, 55)),
        (patched(20, ".log", 2 * SIZE, struct.pack(">q", 24)), (kinds.OFFSETS_GO_BACK, 20, ".log", 2 * SIZE, 24)),
        (patched(20, ".log", 3 * SIZE, struct.pack(">q", 36)), (kinds.OFFSET_GAP, 20, ".log", 3 * SIZE, 36)),
        (patched(20, ".log", SIZE + 12, struct.pack(">i", 2)), (kinds.EPOCH_GOES_BACK, 20, ".log", SIZE, 25)),
        (patched(20, ".index", 4, struct.pack(">i", SIZE + 1)), (kinds.INDEX_DAMAGED, 20, ".index", 0, 29)),
        (patched(20, ".index", 8, struct.pack(">ii", 9, SIZE)), (kinds.INDEX_DAMAGED, 20, ".index", 8, 29)),
        (patched(20, ".index", 20, struct.pack(">i", 9 * SIZE)), (kinds.INDEX_DAMAGED, 20, ".index", 16, 39)),
        (patched(20, ".index", 0, struct.pack(">i", 4)), (kinds.INDEX_DAMAGED, 20, ".index", 0, 24)),
        (patched(20, ".index", 16, bytes(8)), (kinds.INDEX_DAMAGED, 20, ".index", 16, 20)),
        (cut(20, ".index", 3), (kinds.INDEX_DAMAGED, 20, ".index", 16, None)),
        (lambda replica: replica.file(20, ".index").unlink(), (kinds.INDEX_DAMAGED, 20, ".index", 0, None)),
        (
            patched(20, ".timeindex", 12, struct.pack(">q", FIRST_MS + 35)),
            (kinds.TIME_INDEX_DAMAGED, 20, ".timeindex", 12, 34),
        ),
        (patched(20, ".timeindex", 20, struct.pack(">i", 99)), (kinds.TIME_INDEX_DAMAGED, 20, ".timeindex", 12, 119)),
        (
            patched(20, ".timeindex", 12, struct.pack(">qi", FIRST_MS, 14)),
            (kinds.TIME_INDEX_DAMAGED, 20, ".timeindex", 12, 34),
        ),
        (
            lambda replica: replica.file(20, ".timeindex").unlink(),
            (kinds.TIME_INDEX_DAMAGED, 20, ".timeindex", 0, None),
        ),
        (as_folder, (kinds.UNREADABLE, 20, ".log", 0, None)),
    ],
)
def test_damage_is_named_by_file_and_byte(
    tmp_path: Path, damage: Callable[[MadeReplica], object], expected: Told
) -> None:
    damage(write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS])
    assert told(tmp_path)[:1] == [expected]


def test_undamaged_logs_have_no_problem_and_every_batch_is_read(tmp_path: Path) -> None:
    write_log_dir(tmp_path, 1, [FLIGHTS, ("orders-2024", 11)])
    reader = SegmentReader([f"1:{tmp_path}"], [""], [""], True)
    rows = [row for task in reader.partitions() for some in reader.read(task) for row in some.to_pylist()]
    assert [row["problem"] for row in rows] == [None] * 24
    assert {(row["topic"], row["partition"], row["segment"]) for row in rows} == {
        (topic, number, segment) for topic, number in (FLIGHTS, ("orders-2024", 11)) for segment in (0, 20, 40)
    }
    assert [row["base_offset"] for row in rows[:12]] == list(range(0, 60, RECORDS))


def test_the_read_continues_after_damage_at_the_next_batch_that_the_index_knows(tmp_path: Path) -> None:
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    replica.patch(20, ".log", SIZE + 16, b"\0")
    replica.patch(20, ".log", 3 * SIZE + 80, b"?")
    assert told(tmp_path) == [
        (kinds.BAD_HEADER, 20, ".log", SIZE, None),
        (kinds.BAD_CRC, 20, ".log", 3 * SIZE, 35),
    ]


@pytest.mark.parametrize("tail", [b"\0" * 1000, batch(60)[:100], batch(60)[:30]])
def test_a_batch_that_is_being_written_is_no_damage(tmp_path: Path, tail: bytes) -> None:
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    path = replica.file(40, ".log")
    path.write_bytes(path.read_bytes() + tail)
    assert told(tmp_path) == []


def test_preallocated_space_in_kafkas_active_indexes_is_no_damage(tmp_path: Path) -> None:
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    for suffix in (".index", ".timeindex"):
        path = replica.file(40, suffix)
        path.write_bytes(path.read_bytes() + bytes(1 << 16))
    assert told(tmp_path) == []


def test_an_index_entry_for_several_batches_is_no_damage(tmp_path: Path) -> None:
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    replica.file(20, ".index").write_bytes(struct.pack(">ii", 19, SIZE))
    replica.file(20, ".timeindex").write_bytes(struct.pack(">qi", FIRST_MS + 39, 19))
    assert told(tmp_path) == []


def test_a_segment_that_is_deleted_during_the_read_is_no_damage(tmp_path: Path) -> None:
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    reader = SegmentReader([f"1:{tmp_path}"], [""], [""], False)
    first = reader.partitions()[0]
    for suffix in (".log", ".index", ".timeindex"):
        os.rename(replica.file(0, suffix), replica.file(0, f"{suffix}.deleted"))
    assert [row["problem"] for some in reader.read(first) for row in some.to_pylist()] == [GONE]


def test_gaps_are_no_damage_in_a_compacted_topic(tmp_path: Path) -> None:
    folder = tmp_path / "flights-0"
    folder.mkdir()
    write_log_dir(tmp_path, 1, [])
    write_segment(folder, [batch(3), batch(50), batch(70)], 0)
    assert [each[0] for each in told(tmp_path)] == [kinds.OFFSET_GAP] * 3
    assert told(tmp_path, compacted="flights") == []
    write_offsets(tmp_path, {FLIGHTS: 60}, "cleaner-offset-checkpoint")
    assert told(tmp_path) == []


def test_a_problem_counts_only_if_the_files_did_not_change_during_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is compacted between the reads of its index and of its log; a second read finds no damage."""
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    whole = segment_source._whole
    swaps: list[object] = []

    def swapped(path: str) -> bytes | None:
        data = whole(path)
        if path.endswith("020.timeindex") and not swaps:
            swaps.append(write_segment(replica.folder, [batch(20, 3, value=b"other"), batch(25, 3), batch(30, 3)], 20))
        return data

    monkeypatch.setattr(segment_source, "_whole", swapped)
    assert told(tmp_path) == []
    assert swaps


def test_a_torn_end_of_a_segment_is_no_damage_after_a_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower truncates its log between the reads of the index and the log, and appends again."""
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    whole = segment_source._whole

    def cut_meanwhile(path: str) -> bytes | None:
        data = whole(path)
        if path.endswith("020.timeindex") and replica.file(40, ".log").exists():
            for suffix in (".log", ".index", ".timeindex"):
                replica.file(40, suffix).unlink()
            log = replica.file(20, ".log")
            log.write_bytes(log.read_bytes() + batch(40, 3)[:70])
            write_offsets(tmp_path, {FLIGHTS: 40})
        return data

    monkeypatch.setattr(segment_source, "_whole", cut_meanwhile)
    assert told(tmp_path) == [(GONE, 40, ".log", 0, None)]


def test_a_torn_batch_before_other_batches_is_damage_even_above_the_recovery_point(tmp_path: Path) -> None:
    """The index knows a later batch, so this one is not being written."""
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    write_offsets(tmp_path, {FLIGHTS: 40})
    replica.patch(40, ".log", SIZE + 8, struct.pack(">i", 1 << 20))
    assert told(tmp_path) == [(kinds.TORN_BATCH, 40, ".log", SIZE, 45)]


def test_many_gaps_hide_no_other_damage_of_the_segment(tmp_path: Path) -> None:
    folder = tmp_path / "flights-0"
    folder.mkdir()
    write_log_dir(tmp_path, 1, [])
    found = [batch(10 * number) for number in range(1, 151)]
    write_segment(folder, found, 0)
    MadeReplica(folder, {}).patch(0, ".log", 120 * SIZE + 80, b"?")
    listed = [each[0] for each in told(tmp_path)]
    assert (listed.count(kinds.OFFSET_GAP), listed.count(kinds.BAD_CRC)) == (101, 1)


def test_many_batches_with_bad_records_are_one_hundred_problems_and_a_summary(tmp_path: Path) -> None:
    folder = tmp_path / "flights-0"
    folder.mkdir()
    write_log_dir(tmp_path, 1, [])
    write_segment(folder, [sealed(5 * number, 0, b"\xff" * 20, 5) for number in range(150)], 0)
    assert [each[0] for each in told(tmp_path, deep=True)] == [kinds.BAD_RECORDS] * 101


def test_unreadable_folders_and_checkpoints_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """Without high watermarks no replicas are compared, so the result must not look fine."""
    write_log_dir(tmp_path, 1, [FLIGHTS])
    loop = tmp_path / "flights-1"
    loop.symlink_to(loop)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\n")
    log_dir = segment_source.LogDir(1, str(tmp_path))
    assert [each.partition for each in segment_source.replicas([log_dir], ())] == [FLIGHTS]
    assert [(each.path, each.detail) for each in segment_source.unreadable([log_dir])] == [
        (str(loop), "the file cannot be read: Too many levels of symbolic links"),
        (
            str(tmp_path / "replication-offset-checkpoint"),
            "the file cannot be read: the file has 0 entries, but the second line says 1",
        ),
    ]
    assert [each.path for each in segment_source.strays([log_dir])] == [str(loop)]


@pytest.mark.parametrize(
    ("name", "clean_until", "expected"),
    [
        ("00000000000000000020.log.cleaned", 100, True),
        ("00000000000000000020.index.swap", 100, True),
        ("00000000000000000020.log.deleted", 0, True),  # Another segment has replaced it.
        ("00000000000000000040.log.deleted", 40, True),  # The segment before it has its records now.
        ("00000000000000000040.log.deleted", 60, False),  # The compaction has ended.
        ("00000000000000000010.log.deleted", 0, False),  # Retention deletes it.
        ("00000000000000000080.log.deleted", 0, False),  # A truncation deletes it.
        ("00000000000000000020.log", 0, False),
    ],
)
def test_files_show_that_a_partition_is_being_compacted(name: str, clean_until: int, expected: bool) -> None:
    assert is_being_cleaned(["00000000000000000020.log", name], [20, 60], clean_until) is expected


def test_an_index_of_a_segment_that_is_being_deleted_is_no_stray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes the log first and its index between two looks; an index that stays is a stray."""
    replica = write_log_dir(tmp_path, 1, [FLIGHTS])[FLIGHTS]
    for segment in (0, 20):
        replica.file(segment, ".log").unlink()
        replica.file(segment, ".timeindex").unlink()
    entries = segment_source._entries

    def deleted_after_a_look(folder: Path) -> list[Path]:
        found = entries(folder)
        if folder == replica.folder:
            replica.file(0, ".index").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(segment_source, "_entries", deleted_after_a_look)
    (stray,) = segment_source.strays([segment_source.LogDir(1, str(tmp_path))])
    assert stray.path == str(replica.file(20, ".index"))


def test_records_from_before_1970_are_no_damage(tmp_path: Path) -> None:
    """The newest record of the batch has the timestamp -5 ms."""
    folder = tmp_path / "flights-0"
    folder.mkdir()
    write_log_dir(tmp_path, 1, [])
    early = sealed(0, 0, records(5, b"x"), 5, first_ms=-9)
    write_segment(folder, [early, sealed(5, 0, records(5, b"x"), 5, first_ms=-9)], 0)
    (folder / "00000000000000000000.timeindex").write_bytes(b"")  # Brokers index no time before 1970.
    assert told(tmp_path, deep=True) == []


def xerial(data: bytes) -> bytes:
    block: bytes = snappy.compress(data)
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


CODECS: list[tuple[int, Callable[[bytes], Any]]] = [
    (0, bytes),
    (1, gzip.compress),
    (2, xerial),
    (2, snappy.compress),
    (3, lz4.frame.compress),
    (4, zstandard.compress),
]


@pytest.mark.parametrize(("codec", "compress"), CODECS)
def test_a_deep_audit_reads_the_records_of_every_codec(
    tmp_path: Path, codec: int, compress: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "flights-0"
    folder.mkdir()
    write_log_dir(tmp_path, 1, [])
    good, bad = compress(records(5, b"x" * 50)), compress(records(4, b"x" * 50))
    found = [sealed(0, 0, good, 5, codec), sealed(5, 0, bad, 5, codec), sealed(10, 0, b"\xff" * 20, 5, codec)]
    write_segment(folder, found, 0)
    assert told(tmp_path) == []
    assert told(tmp_path, deep=True) == [
        (kinds.BAD_RECORDS, 0, ".log", len(found[0]), 5),
        (kinds.BAD_RECORDS, 0, ".log", len(found[0]) + len(found[1]), 10),
    ]
