"""The limits of a segment, which are computed once for many appends."""

import random
from pathlib import Path

from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.logs.log_loader import write_pending
from barnabas_broker.storage.logs.truncation import cut


def test_segments_roll_exactly_where_a_check_of_all_rules_for_each_batch_rolls_them(tmp_path: Path) -> None:
    """Sizes, times, full indexes and settings are each the reason for some of the rolls."""
    chance = random.Random(7)
    one = OneLog(tmp_path)
    log = one.open()
    rolls = now_ms = 0
    for number in range(3000):
        if number % 100 == 0:
            one = one.with_config(
                segment_bytes=chance.choice([2_000, 30_000, 1 << 30]),
                roll_ms=chance.choice([50, 500, 10**9]),
                index_bytes_max=chance.choice([60, 240, 10 << 20]),
            )
            log.configure(one.config)
        if number % 77 == 0:
            write_pending(log)  # A time index entry of its own.
        if number % 501 == 500:
            cut(log, log.log_end_offset - chance.randrange(5))
            log.known_producers.reloaded(log.producer_replay())
        now_ms += chance.randrange(5)
        data = batch(timestamps=[NOW_MS + now_ms - chance.randrange(20)], value=bytes(chance.choice([10, 900, 5_000])))
        active, last_offset = log.segments.active, log.log_end_offset
        expected = active._breaks_a_bound(one.config, len(data), last_offset, NOW_MS + now_ms, NOW_MS + now_ms)
        must = active.must_roll(one.config, len(data), last_offset, NOW_MS + now_ms, NOW_MS + now_ms)
        assert must == expected
        append(log, data, leader_epoch=1, now_ms=NOW_MS + now_ms)
        rolls += log.segments.active is not active
    assert rolls > 50
