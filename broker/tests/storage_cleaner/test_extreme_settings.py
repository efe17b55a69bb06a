"""Extreme times in the settings of a topic turn off nothing but what they configure."""

from pathlib import Path
from tempfile import TemporaryDirectory

from compaction_samples import COMPACT, OneCompactedLog
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.storage.helper import Inspected
from barnabas_broker.storage.inspection import inspect_batch, inspection
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LONG_MAX, CleanupPolicy
from harness.retention import enforce_retention

TIMES = st.sampled_from([0, 1, 60_000, LONG_MAX - 1, LONG_MAX])
LARGE_TIMES = st.sampled_from([60_000, LONG_MAX - 1, LONG_MAX])
POLICIES = st.sampled_from([COMPACT, COMPACT | {CleanupPolicy.DELETE}])


@settings(max_examples=25)
@given(
    changes=st.fixed_dictionaries(
        {
            "delete_retention_ms": TIMES,
            "retention_ms": LARGE_TIMES,
            "roll_ms": TIMES.filter(bool),
            "roll_jitter_ms": TIMES,
            "max_compaction_lag_ms": TIMES.filter(bool),
            "file_delete_delay_ms": TIMES,
            "flush_ms": TIMES,
            "timestamp_before_max_ms": LARGE_TIMES,
            "timestamp_after_max_ms": LARGE_TIMES,
            "cleanup_policies": POLICIES,
        }
    ),
    min_compaction_lag_ms=TIMES,
)
def test_a_topic_with_extreme_times_is_compacted_and_takes_records(
    changes: dict[str, object], min_compaction_lag_ms: int
) -> None:
    with TemporaryDirectory() as directory:
        one = OneCompactedLog(Path(directory)).with_config(**changes)
        one.append([(b"a", b"1"), (b"b", b"1")])
        one.append([(b"a", b"2"), (b"b", None)])
        one.roll()
        assert one.clean()
        assert one.cleaner.stats.batches_not_understood == 0
        assert one.records().get(0) is None, "a newer value of its key has come"
        assert one.records()[2] == (b"a", b"2")
        assert all(each.timestamp_ms == one.clock.now_ms() for _, records in one.batches() for each in records)
        now_ms = one.clock.now_ms()
        sent = encode_batch([Record(0, now_ms, b"a", b"3")])
        assert isinstance(inspect_batch(inspection(bytes(sent), one.config, now_ms)), Inspected)
        enforce_retention(one.log, now_ms, one.log.log_end_offset)
        one.logs.due_deletions(now_ms)
        assert one.log.due_flush(now_ms) is None or one.config.flush_ms < LONG_MAX - 1
        one.with_config(min_compaction_lag_ms=min_compaction_lag_ms)
        one.append([(b"a", b"3")])
        one.roll()
        assert one.clean() == (min_compaction_lag_ms == 0)
