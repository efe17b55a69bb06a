"""A log against a plain list: append, roll, flush, truncate, crash and open again in any order."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_samples import NOW_MS, OneLog, append, batch, bytes_of, headers_in, read_all

from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.truncation import truncate_to
from harness.soak import size

PRODUCER = 77


class LogMachine(RuleBasedStateMachine):
    """`stored` is the model: base offset, records and value of each batch, in order."""

    @initialize(segment_bytes=st.integers(300, 3000), interval=st.integers(0, 400))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.one = OneLog(Path(self.folder.name)).with_config(
            segment_bytes=segment_bytes, index_interval_bytes=interval
        )
        self.log: Log = self.one.open()
        self.stored: list[tuple[int, int, bytes]] = []
        self.sequences: dict[int, int] = {}
        self.checkpointed = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.log.segments.close_files()
            self.folder.cleanup()

    @property
    def end(self) -> int:
        return self.stored[-1][0] + self.stored[-1][1] if self.stored else 0

    @rule(records=st.integers(1, 4), size=st.integers(1, 300), byte=st.integers(65, 90))
    def append_plain(self, records: int, size: int, byte: int) -> None:
        value = bytes([byte]) * size
        assert append(self.log, batch(records, value=value)).base_offset == self.end
        self.stored.append((self.end, records, value))

    @rule(records=st.integers(1, 3))
    def append_idempotent_twice(self, records: int) -> None:
        end = self.end
        sequence = self.sequences.get(end, 0)
        sent = [batch(records, producer_id=PRODUCER + end, epoch=0, sequence=sequence) for _ in range(2)]
        assert append(self.log, sent[0]).base_offset == end
        again = append(self.log, sent[1])
        assert (again.base_offset, again.duplicate) == (end, True)
        self.stored.append((end, records, b"value"))

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.log.syncs.recovery_point

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.stored)))
        offset = self.stored[kept][0] if kept < len(self.stored) else self.end
        truncate_to(self.log, offset)
        del self.stored[kept:]
        self.checkpointed = min(self.checkpointed, self.log.syncs.recovery_point)

    @rule()
    def shut_down_and_open(self) -> None:
        close_logs([self.log])
        self.checkpointed = self.log.syncs.recovery_point
        self.log = self.one.open(recovery_point=self.checkpointed, clean=True)

    @rule(tail=st.binary(max_size=200))
    def crash_with_a_torn_tail(self, tail: bytes) -> None:
        """Let the process die: data in memory is lost, and there may be half a batch at the end."""
        self.log.segments.close_files()
        with self.one.file(self.log.segments.active.base_offset, ".log").open("ab") as file:
            file.write(tail)
        self.log = self.one.open(recovery_point=self.checkpointed)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def crash_of_the_machine(self, data: st.DataObject) -> None:
        """Cut the unsynced part of the active segment at any byte, and remove some of its indexes."""
        active = self.log.segments.active.base_offset
        synced = [each for each in self.stored if active <= each[0] < self.checkpointed]
        self.log.segments.close_files()
        path = self.one.file(active, ".log")
        with path.open("rb+") as file:
            content = file.read()
            safe = sum(header.size_bytes for header in headers_in(content)[: len(synced)])
            file.truncate(data.draw(st.integers(safe, len(content))))
        for suffix in (".index", ".timeindex"):
            index = self.one.file(active, suffix)
            if data.draw(st.booleans()):
                index.unlink(missing_ok=True)
        left = len(headers_in(path.read_bytes()))
        before = [each for each in self.stored if each[0] < active]
        self.stored = before + self.stored[len(before) : len(before) + left]
        self.log = self.one.open(recovery_point=self.checkpointed)

    @invariant()
    def the_log_ends_where_the_model_does(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end_offset == self.end
            assert self.log.log_start_offset == 0
            assert self.log.syncs.recovery_point <= self.end

    @rule()
    def read_all_back(self) -> None:
        headers = read_all(self.log)
        assert [(each.base_offset, each.record_count) for each in headers] == [each[:2] for each in self.stored]

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), length_max=st.integers(0, 2000))
    def read_somewhere(self, data: st.DataObject, length_max: int) -> None:
        number = data.draw(st.integers(0, len(self.stored) - 1))
        base, records, value = self.stored[number]
        offset = base + data.draw(st.integers(0, records - 1))
        limit = data.draw(st.integers(number, len(self.stored) - 1))
        offset_max = self.stored[limit][0] + self.stored[limit][1]
        found = bytes_of(self.log.read(offset, length_max, offset_max, at_least_one_batch=True))
        headers = headers_in(found)
        assert headers[0].base_offset == base
        assert value in found
        assert headers[-1].last_offset < offset_max
        assert len(found) <= max(length_max, headers[0].size_bytes)


TestLogAgainstItsModel = LogMachine.TestCase
TestLogAgainstItsModel.settings = settings(max_examples=size(20, 400), stateful_step_count=40)
