"""Pages that were seen in the page cache count as cached for a second, and no others do."""

import os
from pathlib import Path

import pytest

from barnabas_broker.server.transport import KNOWN_S, PageCache, is_cached
from barnabas_broker.storage.disk.files import PosixFile
from harness.manual_clock import ManualClock
from harness.require import missing

MIB = 1024 * 1024
FAR = 8 * MIB
"""The distance from the pages that the tests look at: the kernel does not read ahead so far."""


@pytest.fixture
def file(tmp_path: Path) -> PosixFile:
    path = tmp_path / "segment.log"
    path.write_bytes(os.urandom(FAR + MIB))
    made = PosixFile(os.open(path, os.O_RDWR))
    made.sync()
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def page_cache(clock: ManualClock) -> PageCache:
    return PageCache(clock.monotonic_s)


def evict(file: PosixFile) -> None:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(file, 0, MIB):
        missing("this file system does not tell what it has cached")


def test_cached_pages_are_not_looked_up_again_for_a_second(
    file: PosixFile, clock: ManualClock, page_cache: PageCache
) -> None:
    assert page_cache.has(file, 0, MIB)
    evict(file)
    assert page_cache.has(file, 1000, MIB - 1000)
    clock.passed_ms += int(KNOWN_S * 1000)
    assert not page_cache.has(file, 1000, MIB - 1000)


def test_adjacent_pieces_are_remembered_as_one(file: PosixFile, page_cache: PageCache) -> None:
    for start in (0, 2 * MIB, MIB):
        assert page_cache.has(file, start, MIB)
    evict(file)
    assert page_cache.has(file, MIB, 2 * MIB)


def test_pages_that_were_not_looked_up_do_not_count_as_cached(file: PosixFile, page_cache: PageCache) -> None:
    assert page_cache.has(file, 0, MIB)
    evict(file)
    assert not page_cache.has(file, FAR, MIB)
    assert not page_cache.has(file, 0, FAR)


def test_pages_that_were_not_cached_are_looked_up_again_at_once(file: PosixFile, page_cache: PageCache) -> None:
    evict(file)
    assert not page_cache.has(file, 0, MIB)
    file.read_at(0, MIB)
    assert page_cache.has(file, 0, MIB)
