"""Transaction markers in a segment, and its `.txnindex` checked against them. No Spark runs here."""

import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer
from jobs_world import broker_for_jobs
from made_logs import FIRST_MS, MadeReplica, batch, records, sealed, varint, write_log_dir, write_segment

from barnabas_jobs.files.segment_source import SegmentReader
from barnabas_jobs.planning.logs.batches import BAD_MARKER, TRANSACTION_INDEX_DAMAGED
from harness.deadline import PATIENCE_S
from harness.stock_client import StockClient

FLIGHTS = ("flights", 0)
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT, OTHER = 0, 1, 7
SEGMENT = 20
WHOLE = (0, 7, 20, 25, 26)
"""The only entry: producer 7 began at offset 20, and its abort marker is at 25."""
Told = list[tuple[str, int | None]]


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    body = b"\0" + varint(0) + varint(0) + varint(4) + struct.pack(">hh", 0, kind) + varint(6) + bytes(6) + varint(0)
    data = varint(len(body)) + body
    return sealed(offset, 3, data, 1, TRANSACTIONAL | CONTROL, FIRST_MS + offset, producer_id)


def written(offset: int, producer_id: int) -> bytes:
    return sealed(offset, 3, records(5, b"x"), 5, TRANSACTIONAL, FIRST_MS + offset, producer_id)


def with_transactions(folder: Path, *entries: tuple[int, int, int, int, int], last: int = COMMIT) -> MadeReplica:
    """Make a log whose middle segment has an aborted transaction and one that ends with the marker `last`."""
    made = write_log_dir(folder, 1, [FLIGHTS])[FLIGHTS]
    batches = [written(20, 7), marker(25, 7, ABORT), written(26, 8), marker(31, 8, last), batch(32, 3, count=8)]
    write_segment(made.folder, batches, SEGMENT)
    made.file(SEGMENT, ".txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *each) for each in entries))
    return made


def told(log_dir: Path, *, compacted: str = "") -> Told:
    reader = SegmentReader([f"1:{log_dir}"], [""], [compacted], True)
    rows = [row for task in reader.partitions() for some in reader.read(task) for row in some.to_pylist()]
    return [(row["problem"], row["base_offset"]) for row in rows if row["problem"] is not None]


def test_an_index_that_has_the_segments_aborted_transactions_is_no_damage(tmp_path: Path) -> None:
    with_transactions(tmp_path, WHOLE)
    assert told(tmp_path) == []


@pytest.mark.parametrize(
    ("entries", "offset"),
    [
        ([], 25),
        ([(1, 7, 20, 25, 26)], 25),
        ([(0, 8, 20, 25, 26)], 25),
        ([WHOLE, (0, 8, 26, 31, 32)], 31),
        ([WHOLE, WHOLE], 25),
        ([(0, 7, 25, 25, 26)], 25),
        ([(0, 7, 20, 25, 27)], 25),
    ],
    ids=["lacks it", "version", "producer", "committed", "twice", "begins too late", "stable too far"],
)
def test_an_index_entry_that_contradicts_the_markers_is_reported(
    tmp_path: Path, entries: list[tuple[int, int, int, int, int]], offset: int
) -> None:
    with_transactions(tmp_path, *entries)
    assert told(tmp_path) == [(TRANSACTION_INDEX_DAMAGED, offset)]
    assert told(tmp_path, compacted="flights") == []


def test_a_torn_transaction_index_of_a_closed_segment_is_reported(tmp_path: Path) -> None:
    file = with_transactions(tmp_path, WHOLE).file(SEGMENT, ".txnindex")
    file.write_bytes(file.read_bytes() + b"\0\0\0")
    assert told(tmp_path) == [(TRANSACTION_INDEX_DAMAGED, None)]


def test_a_marker_that_is_neither_commit_nor_abort_is_reported(tmp_path: Path) -> None:
    with_transactions(tmp_path, WHOLE, last=OTHER)
    assert told(tmp_path) == [(BAD_MARKER, 31)]


@pytest.mark.slow
def test_a_transaction_index_written_by_a_broker_has_no_damage(tmp_path: Path) -> None:
    server = broker_for_jobs(tmp_path)
    server.start()
    try:
        StockClient(server.bootstrap).create_topic("flights", 1)
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "pay"})
        producer.init_transactions(PATIENCE_S)
        for ends in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("flights", b"record")
            assert producer.flush(PATIENCE_S) == 0
            ends(PATIENCE_S)
        assert server.stop() == 0
    finally:
        server.close()
    (index,) = tmp_path.glob("logs/flights-0/*.txnindex")
    assert index.stat().st_size == 2 * 34
    assert told(tmp_path / "logs") == []
