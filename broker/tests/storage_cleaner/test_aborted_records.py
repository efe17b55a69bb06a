"""Compaction beside transactions: an aborted value takes the place of none, and fetches still name its transaction."""

from pathlib import Path

from compaction_samples import OneCompactedLog

from barnabas_broker.storage.logs.aborted_transactions import aborted_among
from barnabas_broker.storage.logs.marker_append import append_marker
from barnabas_broker.wire.transaction_markers import Marker

ALPHA = 5
TRANSACTIONAL = 0x10


def test_an_aborted_value_takes_the_place_of_no_committed_one(tmp_path: Path) -> None:
    made = OneCompactedLog(tmp_path)
    made.append([(b"a", b"old")])
    made.append([(b"a", b"committed")])
    made.append([(b"a", b"aborted")], producer_id=ALPHA, sequence=0, attributes=TRANSACTIONAL)
    append_marker(made.log, Marker(ALPHA, 0, 0, False), 0, 0, 0, made.clock.now_ms())
    made.roll()
    assert made.clean()
    values = [value for _, value in made.records().values()]
    assert b"old" not in values
    assert {b"committed", b"aborted"} <= set(values)
    made.crash()
    records = made.log.read(0, 1 << 20, made.log.log_end_offset, at_least_one_batch=True)
    assert records is not None
    assert aborted_among(made.log, 0, records) == [(ALPHA, 2)]
