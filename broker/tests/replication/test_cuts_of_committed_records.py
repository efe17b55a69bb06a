"""A follower truncated below its high watermark by an unclean election first checkpoints the lower one."""

from pathlib import Path

import pytest
from one_replica import FLIGHTS, NOW_MS, OTHER, Broker, led

from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ApiError


def fetch(broker: Broker, *offsets: int, high_watermark: int) -> None:
    """Append a fetched record at each of these offsets."""
    for offset in offsets:
        data = encode_batch([Record(0, NOW_MS, b"key", b"value")])
        assign_offset(data, 0, offset, 4)
        broker.partition.follower.append(memoryview(data), 4, high_watermark, 0, NOW_MS)


def checkpointed(path: Path) -> Broker:
    """Return a follower with five committed records, whose high watermark is checkpointed."""
    broker = Broker(path, led(OTHER, 4, OTHER))
    fetch(broker, *range(5), high_watermark=5)
    broker.logs.checkpoint(lambda _: broker.partition.log.high_watermark)
    return broker


def high_watermark_after_a_crash(broker: Broker) -> int:
    for log_dir in broker.logs.log_dirs:
        log_dir.fail(LogDirFailed(log_dir.path, "the process dies"))
    again = Broker(broker.folder.parent, led(OTHER, 5, OTHER))
    return again.partition.log.high_watermark


def test_records_fetched_after_an_unclean_truncation_are_not_committed_after_a_crash(tmp_path: Path) -> None:
    """Consumers or the cleaner would otherwise read them, and a later truncation of them would drop the whole log."""
    broker = checkpointed(tmp_path)
    broker.partition.follower.out_of_range(0, 2, NOW_MS)
    fetch(broker, 2, 3, high_watermark=2)
    assert broker.logs.checkpointed_high_watermark(FLIGHTS) == 2
    assert high_watermark_after_a_crash(broker) == 2


def test_a_log_takes_no_records_before_its_lowered_high_watermark_is_checkpointed(tmp_path: Path) -> None:
    broker = checkpointed(tmp_path)
    broker.logs.truncated.on_added = lambda _: None
    broker.partition.follower.out_of_range(0, 2, NOW_MS)
    with pytest.raises(ApiError, match="takes no appends yet"):
        fetch(broker, 2, high_watermark=2)
    for log_dir in broker.logs.log_dirs:
        broker.logs.truncated.complete(log_dir)
    fetch(broker, 2, high_watermark=2)


def test_a_truncation_of_uncommitted_records_waits_for_no_checkpoint(tmp_path: Path) -> None:
    broker = checkpointed(tmp_path)
    fetch(broker, 5, 6, high_watermark=5)
    broker.logs.truncated.on_added = lambda _: None
    broker.partition.follower.out_of_range(0, 6, NOW_MS)
    fetch(broker, 6, high_watermark=5)
    assert broker.partition.log.log_end_offset == 7
