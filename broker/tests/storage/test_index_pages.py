"""Index pages that lookups have read stay in memory, up to a limit."""

from pathlib import Path

from storage_samples import OneLog, append, batch

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.segments.indexes import NO_PAGE, OFFSET_ENTRY, IndexPages, SparseIndex


def written_index(path: Path, pages: IndexPages) -> SparseIndex:
    path.touch()
    index = SparseIndex(PosixFileSystem(), str(path), OFFSET_ENTRY, 0, pages)
    for number in range(1000):
        index.append(number * 10, number * 4096)
    index.flush()
    return index


def test_only_the_most_recently_read_pages_are_kept(tmp_path: Path) -> None:
    pages = IndexPages(2)
    indexes = [written_index(tmp_path / f"{number}.index", pages) for number in range(5)]
    for index in indexes:
        assert index.floor(7_015) == (7_010, 701 * 4096)
    kept = [index for index in indexes if index._page is not NO_PAGE]
    assert kept == indexes[3:]
    assert all(index.floor(1_015) == (1_010, 101 * 4096) for index in indexes)
    assert len(pages) == 2


def test_a_lookup_in_an_index_without_written_entries_opens_no_file(tmp_path: Path) -> None:
    index = SparseIndex(
        PosixFileSystem(), str(tmp_path / "folder that is not there" / "0.index"), OFFSET_ENTRY, 0, IndexPages(1)
    )
    assert index.floor(5) is None
    index.append(10, 4096)
    assert index.floor(5) is None
    assert index.floor(10) == (10, 4096)
    assert index.count == 1


def test_reads_of_many_logs_keep_a_bounded_number_of_pages(tmp_path: Path) -> None:
    pages = IndexPages(4)
    for number in range(10):
        one = OneLog(tmp_path / str(number), index_pages=pages)
        log = one.open()
        for _ in range(20):
            append(log, batch(1, value=bytes(1000)))
        close_logs([log])
        again = one.open(recovery_point=20, clean=True)
        assert again.read(13, 1, 20, at_least_one_batch=True) is not None
    assert len(pages) == 4
