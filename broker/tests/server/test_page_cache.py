"""What was seen in the page cache is taken for cached for a second, and nothing else is."""

import os
from pathlib import Path

import pytest

from barnabas_broker.server.page_cache import KNOWN_S, PageCache, is_cached
from barnabas_broker.storage.disk.files import PosixFile
from harness.manual_clock import ManualClock
from harness.require import missing

MIB = 1024 * 1024
FAR = 8 * MIB
"""From what the tests look at: nobody reads ahead so far."""


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


def test_what_was_cached_is_not_asked_for_again_for_a_second(
    file: PosixFile, clock: ManualClock, page_cache: PageCache
) -> None:
    assert page_cache.has(file, 0, MIB)
    evict(file)
    assert page_cache.has(file, 1000, MIB - 1000)
    clock.passed_ms += int(KNOWN_S * 1000)
    assert not page_cache.has(file, 1000, MIB - 1000)


def test_pieces_that_touch_are_known_as_one(file: PosixFile, page_cache: PageCache) -> None:
    for start in (0, 2 * MIB, MIB):
        assert page_cache.has(file, start, MIB)
    evict(file)
    assert page_cache.has(file, MIB, 2 * MIB)


def test_what_nobody_has_looked_at_is_not_taken_for_cached(file: PosixFile, page_cache: PageCache) -> None:
    assert page_cache.has(file, 0, MIB)
    evict(file)
    assert not page_cache.has(file, FAR, MIB)
    assert not page_cache.has(file, 0, FAR)


def test_what_is_not_cached_is_asked_for_again_at_once(file: PosixFile, page_cache: PageCache) -> None:
    evict(file)
    assert not page_cache.has(file, 0, MIB)
    file.read_at(0, MIB)
    assert page_cache.has(file, 0, MIB)
