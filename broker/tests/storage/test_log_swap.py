"""Compacted segments replace old ones; a crash at any step leaves every record once."""

from pathlib import Path

import pytest
from storage_samples import DiesAtARename, OneLog, append, batch, bytes_of, headers_in, read_all

from barnabas_broker.storage.logs.log import Log

SIZE = len(batch(1))


def with_cleaned_files(one: OneLog) -> Log:
    """Make segments 0-1, 2-3, 4-5 and the active 6, and a cleaned one with batches 1 and 3 of the first two."""
    log = one.with_config(segment_bytes=2 * SIZE).open()
    for _ in range(7):
        append(log, batch(1))
    log.flush()
    kept = [one.file(0, ".log").read_bytes()[SIZE:], one.file(2, ".log").read_bytes()[SIZE:]]
    one.file(0, ".log.cleaned").write_bytes(b"".join(kept))
    one.file(0, ".index.cleaned").write_bytes(b"")
    one.file(0, ".timeindex.cleaned").write_bytes(b"")
    return log


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def test_a_swapped_segment_is_read_and_the_old_ones_are_removed_after_the_delay(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = with_cleaned_files(one)
    reading = log.read(0, 10_000, 7, at_least_one_batch=True)
    log.replace_segments([segment for segment in log.segments if segment.base_offset < 4], [0], now_ms=0)
    assert offsets(log) == [1, 3, 4, 5, 6]
    assert headers_in(bytes_of(reading))[0].base_offset == 0
    assert headers_in(bytes_of(log.read(2, 1, 7, at_least_one_batch=True)))[0].base_offset == 3
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6]
    removed = one.environment.trash.take(one.config.file_delete_delay_ms)
    assert sorted(Path(path).name for path in removed if ".log" in path) == [
        f"{base:020d}.log.deleted" for base in (0, 2)
    ]
    assert append(log, batch(1)).base_offset == 7


@pytest.mark.parametrize("renames", range(13))
def test_a_crash_in_a_swap_leaves_the_old_or_the_new_segments(tmp_path: Path, renames: int) -> None:
    files = DiesAtARename()
    one = OneLog(tmp_path, files=files)
    log = with_cleaned_files(one)
    files.renames_left = renames
    finished = True
    try:
        log.replace_segments([segment for segment in log.segments if segment.base_offset < 4], [0], now_ms=0)
    except KeyboardInterrupt:
        finished = False
    again = OneLog(tmp_path, one.config).open(recovery_point=7)
    assert offsets(again) == ([0, 1, 2, 3, 4, 5, 6] if renames == 0 else [1, 3, 4, 5, 6])
    assert finished == (renames == 12)
    assert not list(one.directory.glob("*.swap"))
