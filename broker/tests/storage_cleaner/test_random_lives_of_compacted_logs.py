"""A compacted log against all records ever written to it: random rounds, crashes, lost checkpoints and truncations.

The log has the newest value of each key, and no record of another history. No epoch starts later than it did. A
truncation of uncommitted records keeps the rest of the log; one of committed records keeps all of the rest or none.
"""

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from compaction_samples import PLANES, OneCompactedLog

from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.helper import HelperDied, Request
from barnabas_broker.storage.logs.truncation import truncate_to

STEPS = 60
KEYS = 4
HIGH_WATERMARKS = "replication-offset-checkpoint"
SEEDS = (3, 17, 19, 20, 206, 212, 225, 233, 922)
"""The seeds of which each finds an earlier mistake, if that is put back."""
CHECKPOINTS = (HIGH_WATERMARKS, "cleaner-offset-checkpoint", "recovery-point-offset-checkpoint")


class Written(NamedTuple):
    """A record; its place among all records is its offset."""

    key: bytes
    value: bytes | None
    epoch: int


class RandomLife:
    """`step` does one thing to the log, `check` compares it. `story` is what was done."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.story: list[str] = []
        self._path = path
        retention_ms = self.random.choice((0, 2000))
        self._one = OneCompactedLog(path).with_config(
            segment_bytes=self.random.choice((200, 300, 600)), delete_retention_ms=retention_ms
        )
        self._written: list[Written] = []
        self._high_watermark = self._epoch = 0
        self._is_known = False
        """True if the checkpoint has a current high watermark."""
        self._was_known = True
        """True if the checkpoint had one when the log was opened."""
        often = (self._append, self._commit, self._checkpoint, self._clean, self._end_within_a_round)
        seldom = (self._roll, self._crash, self._stop, self._elect, self._cut_what_is_not_committed)
        self._steps = (*often * 3, *seldom * 2, self._cut_what_is_committed, self._pass_time)

    def step(self) -> None:
        name = (step := self.random.choice(self._steps)).__name__
        step()
        log = self._one.log
        self.story.append(
            f"{name}: {log.log_end_offset} records, {self._high_watermark} committed, epoch {self._epoch}, "
            f"clean until {log.compaction.clean_until}, superseded until {log.compaction.superseded_until}"
        )

    def _append(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            key = b"key %d" % self.random.randrange(KEYS)
            value = None if self.random.random() < 0.25 else b"%d" % self.random.getrandbits(32)
            self._append_one(Written(key, value, self._epoch))
            self._written.append(Written(key, value, self._epoch))

    def _append_one(self, written: Written) -> None:
        self._one.append([(written.key, written.value)], leader_epoch=written.epoch)

    def _commit(self) -> None:
        self._high_watermark = self.random.choice(
            (len(self._written), self.random.randint(self._high_watermark, len(self._written)))
        )

    def _checkpoint(self) -> None:
        self._one.logs.checkpoint(lambda _: self._high_watermark)
        self._is_known = True

    def _clean(self) -> None:
        checkpointed = self._one.logs.checkpointed_high_watermark(PLANES)
        self._one.stable_offset = min(self._high_watermark, checkpointed)
        self._one.clean()

    def _end_within_a_round(self) -> None:
        left = self.random.randrange(1, 4)

        def die(_: Request) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise HelperDied("with the broker")

        self._one.helper.before = die
        self._clean()
        self.random.choice((self._crash, self._stop))()

    def _roll(self) -> None:
        self._one.roll()

    def _crash(self) -> None:
        """Let the process die; sometimes checkpoints are damaged."""
        self._one.logs.log_dirs[0].fail(StorageError(str(self._path), "the process dies"))
        if self.random.random() < 0.3:
            for path in (*map(self._path.joinpath, CHECKPOINTS), self._one.directory / "leader-epoch-checkpoint"):
                if path.exists() and self.random.random() < 0.5:
                    path.write_text("damaged")
                    self._is_known &= path.name != HIGH_WATERMARKS
        self._was_known = self._is_known
        self._one.open()

    def _stop(self) -> None:
        self._one.logs.shutdown(lambda _: self._high_watermark)
        self._is_known = self._was_known = True
        self._one.open()

    def _elect(self) -> None:
        self._epoch += 1

    def _pass_time(self) -> None:
        self._one.clock.pass_time(self.random.choice((1.0, 60.0)))

    def _cut_what_is_not_committed(self) -> None:
        cut_at = self.random.randint(self._high_watermark, len(self._written))
        end_offset = self._cut(cut_at)
        assert end_offset == cut_at or not self._was_known, f"a replica in sync was cut to {end_offset}, not {cut_at}"

    def _cut_what_is_committed(self) -> None:
        cut_at = self.random.randint(0, self._high_watermark)
        assert self._cut(cut_at) in (0, cut_at)

    def _cut(self, cut_at: int) -> int:
        """Truncate, fetch missing records again as a follower does, and return where the log ended in between."""
        log = self._one.log
        truncate_to(log, cut_at)
        end_offset = log.log_end_offset
        if end_offset < self._high_watermark:
            log.await_checkpoint()
        del self._written[cut_at:]
        self._high_watermark = min(self._high_watermark, cut_at)
        for each in self._written[end_offset:]:
            self._append_one(each)
        self._epoch += 1
        return end_offset

    def check(self) -> None:
        log, found = self._one.log, self._one.records()
        assert log.log_end_offset == len(self._written)
        for offset, pair in found.items():
            assert pair == self._written[offset][:2], f"offset {offset} is of another history"
        left = {key: offset for offset, (key, _) in sorted(found.items())}
        for key, offset in {written.key: offset for offset, written in enumerate(self._written)}.items():
            may_be_gone = self._written[offset].value is None and key not in left
            assert left.get(key) == offset or may_be_gone, f"{key!r} is at {offset}, not {left.get(key)}"
        self._check_epochs()

    def _check_epochs(self) -> None:
        for number, written in enumerate(self._written):
            known_epoch, end_offset = self._one.log.epochs.end_offset_for(written.epoch, self._one.log.log_end_offset)
            later = (offset for offset, each in enumerate(self._written) if each.epoch > written.epoch)
            end_max = next(later, len(self._written))
            assert end_offset <= end_max, f"epoch {written.epoch} of {number} ends at {end_max}, not {end_offset}"
            assert known_epoch <= written.epoch


@pytest.mark.parametrize("seed", [*SEEDS, *range(100, 104)])
def test_a_log_has_the_newest_values_whatever_happened_to_it(tmp_path: Path, seed: int) -> None:
    """Run it again with `-k`, its name and the seed in brackets."""
    life = RandomLife(tmp_path, seed)
    for _ in range(STEPS):
        try:
            life.step()
            life.check()
        except AssertionError as error:
            raise AssertionError("\n".join([f"seed {seed}: {error}", *life.story[-12:]])) from error
