"""Random histories of a compacted log: a reader finds exactly the records that the rules leave."""

import tempfile
from pathlib import Path

from compaction_samples import NOW_MS, OneCompactedLog, Pair
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from barnabas_broker.storage.cleaner.cleaned_segment import SLOT_BYTES
from barnabas_broker.wire.record_batch import Codec
from harness.soak import size

RETENTION_MS = 1000
KEYS = st.none() | st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
VALUES = st.none() | st.binary(max_size=60)


class CompactionMachine(RuleBasedStateMachine):
    """`written` is all that was ever appended; `batches` are the base and last offsets, with the delete horizon."""

    @initialize(
        segment_bytes=st.integers(200, 2000), interval=st.integers(0, 300), slots=st.sampled_from([3, 5, 11, 1000])
    )
    def begin(self, segment_bytes: int, interval: int, slots: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.one = OneCompactedLog(Path(self.folder.name)).with_config(
            segment_bytes=segment_bytes, index_interval_bytes=interval, delete_retention_ms=RETENTION_MS
        )
        self.one.settings = replace(
            self.one.settings, log_cleaner_dedupe_buffer_size=slots * SLOT_BYTES, log_cleaner_io_buffer_size=1024
        )
        self.written: dict[int, tuple[bytes | None, bytes | None, int]] = {}
        self.batches: dict[tuple[int, int], int | None] = {}
        self.sequences: dict[int, int] = {}
        self.expired: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.one.log.segments.close_files()
            self.folder.cleanup()

    @rule(
        pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
        codec=st.sampled_from(Codec),
        producer=st.sampled_from([-1, -1, 1, 2]),
        earlier_ms=st.integers(0, 500),
    )
    def append(self, pairs: list[Pair], codec: Codec, producer: int, earlier_ms: int) -> None:
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        times = [self.one.clock.now_ms() - earlier_ms + number for number in range(len(pairs))]
        base = self.one.append(pairs, codec=codec, producer_id=producer, sequence=sequence, timestamps=times)
        for number, (key, value) in enumerate(pairs):
            self.written[base + number] = (key, value, times[number])
        self.batches[base, base + len(pairs) - 1] = None
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)

    @rule()
    def roll(self) -> None:
        self.one.roll()

    @rule(passed_ms=st.integers(1, 700))
    def time_passes(self, passed_ms: int) -> None:
        self.one.clock.passed_ms += passed_ms

    @rule()
    def crash(self) -> None:
        self.one.crash()
        for producer, sequence in self.sequences.items():
            assert self.one.log.producers.producers[producer].last_sequence == sequence - 1

    @rule()
    def clean_once(self) -> None:
        rounds = self.one.cleaner.stats.rounds
        self.one.clean()
        assert not self.one.cleaner.backoff.failed
        if self.one.cleaner.stats.rounds > rounds:
            self.round_was_done()

    @rule()
    def clean_all(self) -> None:
        self.one.roll()
        for _ in range(200):
            rounds = self.one.cleaner.stats.rounds
            if not self.one.clean():
                break
            assert self.one.cleaner.stats.rounds == rounds + 1
            self.round_was_done()
        else:
            raise AssertionError("compaction makes no progress")
        assert self.clean_until == self.one.log.segments.active.base_offset

    @property
    def clean_until(self) -> int:
        return self.one.log.compaction.clean_until or 0

    def newest(self) -> dict[bytes | None, int]:
        return {key: offset for offset, (key, _, _) in self.written.items() if offset < self.clean_until}

    def round_was_done(self) -> None:
        """Do the model's own round: tombstones past their horizon are removed, and others get a horizon."""
        now_ms, newest = self.one.clock.now_ms(), self.newest()
        for (base, last), horizon_ms in self.batches.items():
            tombstones = [
                offset
                for offset in range(base, last + 1)
                if self.written[offset][0] is not None
                and self.written[offset][1] is None
                and newest.get(self.written[offset][0]) == offset
                and offset not in self.expired
            ]
            if horizon_ms is not None and now_ms >= horizon_ms:
                self.expired |= set(tombstones)
            elif horizon_ms is None and last < self.clean_until and tombstones:
                self.batches[base, last] = now_ms + RETENTION_MS

    @rule()
    def a_reader_finds_what_the_rules_leave(self) -> None:
        newest, until = self.newest(), self.clean_until
        expected = {
            offset: (key, value, timestamp_ms)
            for offset, (key, value, timestamp_ms) in self.written.items()
            if offset >= until or (key is not None and newest[key] == offset and offset not in self.expired)
        }
        found = {
            header.base_offset + record.offset_delta: (record.key, record.value, record.timestamp_ms)
            for header, records in self.one.batches()
            for record in records
        }
        assert found == expected

    @rule(data=st.data())
    def a_reader_may_begin_anywhere(self, data: st.DataObject) -> None:
        log = self.one.log
        offset = data.draw(st.integers(0, log.log_end_offset))
        found = log.read(offset, 1, log.log_end_offset, at_least_one_batch=True)
        expected = [header for header, _ in self.one.batches() if header.last_offset >= offset]
        assert (found is None) == (not expected)
        if found is not None:
            assert found.length == expected[0].size_bytes

    @invariant()
    def the_log_begins_and_ends_where_it_did(self) -> None:
        if hasattr(self, "one"):
            assert self.one.log.log_start_offset == 0
            assert self.one.log.log_end_offset == len(self.written)
            assert self.one.clock.now_ms() >= NOW_MS


TestCompactionAgainstItsModel = CompactionMachine.TestCase
TestCompactionAgainstItsModel.settings = settings(max_examples=size(20, 400), stateful_step_count=30)
