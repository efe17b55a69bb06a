"""Random transactions in a compacted log: a reader of committed records finds the records of a naive model."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from compaction_samples import OneCompactedLog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnabas_broker.storage.logs.log import aborted_among
from barnabas_broker.storage.logs.truncation import append_marker
from barnabas_broker.wire.key_values import Marker
from harness.soak import size

TRANSACTIONAL = 0x10
RETENTION_MS = 1000
PRODUCERS = st.sampled_from([1, 2, 3])
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=3)


class Written(NamedTuple):
    """A record, with its transaction, if it is part of one."""

    key: bytes
    value: bytes
    transaction: int | None


class TransactionsMachine(RuleBasedStateMachine):
    """`written` is all that was ever appended, by offset; `committed` says how transactions ended, by their number."""

    @initialize(segment_bytes=st.integers(200, 1200))
    def begin(self, segment_bytes: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.one = OneCompactedLog(Path(self.folder.name)).with_config(
            segment_bytes=segment_bytes, delete_retention_ms=RETENTION_MS
        )
        self.written: dict[int, Written] = {}
        self.open: dict[int, int] = {}
        self.committed: dict[int, bool] = {}
        self.sequences = dict.fromkeys((1, 2, 3), 0)
        self.transactions = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.one.log.segments.close_files()
            self.folder.cleanup()

    @rule(keys=KEYS)
    def append(self, keys: list[bytes]) -> None:
        self._note(self.one.append([(key, self._value()) for key in keys]), keys, None)

    @rule(keys=KEYS, producer=PRODUCERS)
    def append_in_transaction(self, keys: list[bytes], producer: int) -> None:
        if producer not in self.open:
            self.transactions += 1
            self.open[producer] = self.transactions
        sequence = self.sequences[producer]
        self.sequences[producer] += len(keys)
        pairs = [(key, self._value()) for key in keys]
        base = self.one.append(pairs, producer_id=producer, sequence=sequence, attributes=TRANSACTIONAL)
        self._note(base, keys, self.open[producer])

    def _value(self) -> bytes:
        return b"of %d" % self.one.log.log_end_offset

    def _note(self, base: int, keys: list[bytes], transaction: int | None) -> None:
        self.written |= {base + number: Written(key, b"of %d" % base, transaction) for number, key in enumerate(keys)}

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        if producer in self.open:
            self.committed[self.open.pop(producer)] = commit
            append_marker(self.one.log, Marker(producer, 0, 0, commit), 0, 0, self.one.clock.now_ms())

    @rule()
    def roll(self) -> None:
        self.one.roll()

    @rule(passed_ms=st.integers(1, 700))
    def time_passes(self, passed_ms: int) -> None:
        self.one.clock.passed_ms += passed_ms

    @rule()
    def crash(self) -> None:
        stable_offset = self._stable_offset()
        self.one.crash()
        assert self._stable_offset() == stable_offset
        for producer, sequence in self.sequences.items():
            if sequence:
                assert self.one.log.producers.producers[producer].last_sequence == sequence - 1

    @rule()
    def clean(self) -> None:
        self.one.stable_offset = self._stable_offset()
        self.one.clean()
        assert not self.one.cleaner.backoff.failed

    def _stable_offset(self) -> int:
        return self.one.log.producers.transactions.stable_until(self.one.log.log_end_offset)

    @rule()
    def who_reads_committed_records_finds_the_newest_of_each_key(self) -> None:
        until, stable_offset = self.one.log.compaction.clean_until or 0, self._stable_offset()
        counting = {
            offset: record
            for offset, record in self.written.items()
            if offset < stable_offset and (record.transaction is None or self.committed.get(record.transaction))
        }
        newest = {record.key: offset for offset, record in counting.items() if offset < until}
        expected = {
            offset: record.value
            for offset, record in counting.items()
            if offset >= until or newest[record.key] == offset
        }
        assert self._read_committed(stable_offset) == expected
        left = [offset for offset in self.one.records() if offset < until and offset in self.written]
        assert [offset for offset in left if offset not in counting] == [], "aborted records are gone"

    def _read_committed(self, stable_offset: int) -> dict[int, bytes | None]:
        """Return what a client finds that gets the aborted transactions with the batches."""
        found: dict[int, bytes | None] = {}
        log, aborted = self.one.log, set[int]()
        coming: list[tuple[int, int]] = []
        for segment in log.segments:
            read = log.read(segment.base_offset, 1 << 20, log.log_end_offset, at_least_one_batch=True)
            coming += aborted_among(log, segment.base_offset, read) if read is not None else []
        coming = sorted(set(coming), key=lambda each: each[1])
        for header, records in self.one.batches():
            while coming and coming[0][1] <= header.last_offset:
                aborted.add(coming.pop(0)[0])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif header.base_offset < stable_offset and not (header.is_transactional and header.producer_id in aborted):
                found |= {header.base_offset + each.offset_delta: each.value for each in records}
        return found


TestTransactionsAgainstTheirModel = TransactionsMachine.TestCase
TestTransactionsAgainstTheirModel.settings = settings(max_examples=size(20, 400), stateful_step_count=30)
