"""Readers of sorted data files, by which a restore gets the records of a partition in order. No Spark runs here."""

import pickle
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from barnabas_jobs.files.sorted_records import PartitionRecords, Unreadable, Wanted, merged
from barnabas_jobs.planning.archived import ArchivedFile

FIRST_US = 1_700_000_000_000_007
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
KINDS = {"partition": pyarrow.int32(), "timestamp": pyarrow.timestamp("us", "UTC"), "headers": HEADERS}


def row(partition: int, offset: int, value: bytes | None = b"v") -> dict[str, Any]:
    """Return a record; its timestamp is as many milliseconds after the first one as its offset."""
    headers = [{"key": "a", "value": None}] if offset % 2 else None
    place = {"partition": partition, "offset": offset, "timestamp": FIRST_US + offset * 1000}
    return {**place, "key": None, "value": value, "headers": headers}


def data_file(folder: Path, rows: list[dict[str, Any]], rows_of_group: int = 7) -> ArchivedFile:
    """Write a data file in this order, and return it with the bounds that a table has of it."""
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    kinds = {"offset": pyarrow.int64(), "key": pyarrow.binary(), "value": pyarrow.binary(), **KINDS}
    table = pyarrow.table({name: pyarrow.array([each[name] for each in rows], kinds[name]) for name in rows[0]})
    pyarrow.parquet.write_table(table, path, row_group_size=rows_of_group, write_page_checksum=True)
    bounds = {f"{name}_{end.__name__}": end(each[name] for each in rows) for name in BOUNDED for end in (min, max)}
    return ArchivedFile(path=path.as_uri(), bytes=path.stat().st_size, records=len(rows), **bounds)


BOUNDED = ("partition", "offset")


def read(files: list[ArchivedFile], wanted: Wanted) -> list[tuple[Any, ...]]:
    """Read as an executor does, which gets the reader as bytes."""
    return list(pickle.loads(pickle.dumps(PartitionRecords(PyArrowFileIO(), files, wanted))))


def offsets(found: list[tuple[Any, ...]]) -> list[int]:
    return [each[1] - FIRST_US // 1000 for each in found]


def test_only_the_wanted_records_of_a_partition_are_read_in_order(tmp_path: Path) -> None:
    whole = data_file(tmp_path, [row(partition, offset) for partition in range(3) for offset in range(50)])
    later = data_file(tmp_path, [row(1, offset) for offset in range(50, 60)])
    found = read([later, whole], Wanted(1, 10, 55))
    assert offsets(found) == list(range(10, 55))
    assert found[0] == (1, FIRST_US // 1000 + 10, None, b"v", None)
    assert found[1][4] == [{"key": "a", "value": None}]
    first_ms = FIRST_US // 1000
    assert offsets(read([whole, later], Wanted(1, 10, 55, first_ms + 48, first_ms + 53))) == list(range(48, 53))


def test_a_file_without_bounds_is_read_too(tmp_path: Path) -> None:
    file = data_file(tmp_path, [row(partition, offset) for partition in range(3) for offset in range(9)])
    unknown = file._replace(partition_min=None, partition_max=None, offset_min=None, offset_max=None)
    assert offsets(read([unknown], Wanted(2, 3, 6))) == [3, 4, 5]


@pytest.mark.parametrize("seed", range(40))
def test_records_that_days_have_spread_over_files_are_merged_by_offset(seed: int) -> None:
    chance = random.Random(seed)
    files: list[list[int]] = [[] for _ in range(chance.randrange(1, 8))]
    for offset in range(chance.randrange(1, 200)):
        chance.choice(files).append(offset)
    parts = [(each[0] - chance.randrange(5), partial(batches, each, chance.randrange(1, 20))) for each in files if each]
    found = [offset for batch in merged(parts) for offset in batch.column("offset").to_pylist()]
    assert found == sorted(offset for each in files for offset in each)


def batches(found: list[int], size: int) -> Iterator[pyarrow.RecordBatch]:
    for first in range(0, len(found), size):
        yield pyarrow.record_batch({"offset": pyarrow.array(found[first : first + size], pyarrow.int64())})


def test_a_thousand_files_are_not_open_at_the_same_time() -> None:
    """A commit a minute makes 43,200 files of each partition in a month."""
    now, most = 0, 0

    def counted(first: int) -> Iterator[pyarrow.RecordBatch]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        yield from batches(list(range(first, first + 10)), 10)
        now -= 1

    parts: list[tuple[int, Callable[[], Iterator[pyarrow.RecordBatch]]]] = [
        (first, partial(counted, first)) for first in range(0, 10_000, 10)
    ]
    assert sum(batch.num_rows for batch in merged(parts)) == 10_000
    assert most <= 2


def test_an_offset_that_two_files_have_is_refused(tmp_path: Path) -> None:
    """A record would be restored twice, and the offsets of groups would be wrong."""
    files = [data_file(tmp_path, [row(0, offset) for offset in found]) for found in (range(10), range(9, 12))]
    with pytest.raises(Unreadable, match=r"partition 0 has an offset from 9 to 9 twice; run `verify`"):
        read(files, Wanted(0, 0, 20))


def test_a_file_that_another_program_has_written_in_another_order_is_refused(tmp_path: Path) -> None:
    file = data_file(tmp_path, [row(0, offset) for offset in (3, 1, 2)])
    with pytest.raises(Unreadable, match=r"0\.parquet is not sorted by partition and offset; let the program"):
        read([file], Wanted(0, 0, 20))


def test_a_flipped_bit_and_a_missing_file_are_reported_with_their_path(tmp_path: Path) -> None:
    file = data_file(tmp_path, [row(0, offset, b"value-%d" % offset) for offset in range(7)])
    path = tmp_path / "0.parquet"
    chunk = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(4)
    content = bytearray(path.read_bytes())
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"the data file file://.*/0\.parquet cannot be read: .*CRC"):
        read([file], Wanted(0, 0, 20))
    path.unlink()
    with pytest.raises(Unreadable, match=r"If `compact` has replaced the file meanwhile, run the job again"):
        read([file], Wanted(0, 0, 20))


def test_a_reader_opens_no_file_of_other_offsets(tmp_path: Path) -> None:
    files = [data_file(tmp_path, [row(0, offset) for offset in range(first, first + 5)]) for first in (0, 5, 10)]
    opened: list[str] = []

    class Counted(PyArrowFileIO):
        def new_input(self, location: str) -> PyArrowFile:
            opened.append(location)
            return super().new_input(location)

    assert offsets(list(PartitionRecords(Counted(), files, Wanted(0, 6, 9)))) == [6, 7, 8]
    assert opened == [files[1].path]
