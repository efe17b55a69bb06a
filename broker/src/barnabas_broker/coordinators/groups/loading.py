"""How shards come to know their groups: each reads its partition from the start to its end.

A new leader has all that was ever committed and perhaps more, which may be committed yet or already is without its
knowledge. So it reads everything, and serves once its high watermark has reached what it has read.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from barnabas_broker.coordinators.groups.left_out import LeftOut
from barnabas_broker.coordinators.groups.newest import Newest
from barnabas_broker.coordinators.groups.removal import forget_deleted_topics
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.tables import GroupTables
from barnabas_broker.coordinators.groups.turns import Turns
from barnabas_broker.storage.errors import CorruptLog, StorageError
from barnabas_core.clock import Cancellable
from barnabas_core.errors import ApiError

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_DAMAGED_RETRY_S: Final = 30.0
"""To read everything once more costs more than to be refused, and damage seldom mends itself."""
_PROGRESS_S: Final = 2.0
_APPLIED_AT_ONCE: Final = 500
_SERVED_AT_ONCE: Final = 100
"""Groups; about a millisecond, as for the records above."""


def load(shard: GroupShard, turns: Turns) -> None:
    """Load a shard, by turns with all others: after a failover they may be many, and small ones are not to wait for a
    large one. Until it is loaded clients are told that its coordinator is loading.
    """
    turns.add(_Loading(shard, turns).advance)


class _Loading:
    """One shard on its way."""

    def __init__(self, shard: GroupShard, turns: Turns) -> None:
        self._shard = shard
        self._turns = turns
        self._timers = shard.environment.timers
        self._keys = 0
        self._started_s = self._told_s = shard.environment.clock.monotonic_s()
        self._steps = self._read()
        self._patience: Cancellable | None = None
        self._complaint = ""

    def advance(self) -> bool:
        """Do one slice; False when there is nothing more to do for now. What fails is tried again: meanwhile the groups
        of this partition are not served, and all others are.
        """
        if self._shard.is_closed:
            return False
        try:
            more = next(self._steps, False)
        except Exception as error:
            self._failed(error)
            return False
        self._tell_progress()
        return more

    def _go_on(self) -> None:
        """What it waited for is there."""
        self._turns.add(self.advance)

    def _read(self) -> Iterator[bool]:
        """Each step is a slice; False to wait for `_go_on`."""
        shard = self._shard
        shard.tables = GroupTables()
        newest = Newest()
        self._left_out = LeftOut()
        self._keys = 0
        for key_values in shard.environment.log.read(shard.partition, self._go_on):
            if key_values is not None:
                self._keys += len(key_values)
                newest.add(key_values)
            yield key_values is not None
        while newest:
            newest.apply(shard.tables, _APPLIED_AT_ONCE, self._left_out)
            yield True
        self._patience = self._timers.call_later(_PROGRESS_S, self._tell_uncommitted)
        shard.environment.log.when_committed(shard.partition, self._committed)

    def _committed(self, error: ApiError | None) -> None:
        """All that was read is committed, or the log cannot say."""
        if self._patience is not None:
            self._patience.cancel()
        if self._shard.is_closed:
            return
        if error is not None:
            self._failed(error)
            return
        self._steps = self._restore()
        self._go_on()

    def _restore(self) -> Iterator[bool]:
        shard = self._shard
        for _ in shard.tables.restore_groups(shard.now(), self._left_out):
            yield True
        shard.left_out_count = self._left_out.count
        shard.has_failed_to_load = False
        shard.is_loaded = True
        self._tell_loaded()
        self._turns.run(_begin_to_serve(shard))

    def _tell_loaded(self) -> None:
        shard = self._shard
        seconds = shard.environment.clock.monotonic_s() - self._started_s
        groups, offsets = len(shard.tables.groups), sum(map(len, shard.tables.offsets.values()))
        message = "partition %d: loaded %d groups and %d offsets in %.2f s"
        level = logging.INFO if self._keys else logging.DEBUG
        _logger.log(level, message, shard.partition, groups, offsets, seconds)
        self._left_out.report(shard.partition)

    def _failed(self, error: Exception) -> None:
        """Once more, a little later; the same reason is logged once. What is neither the log nor the disk is a bug."""
        self._shard.has_failed_to_load = True
        is_bug = not isinstance(error, (ApiError, StorageError))
        if str(error) != self._complaint:
            self._complaint = str(error)
            message = "%sloading groups of partition %d: %s; trying again"
            level = logging.ERROR if is_bug else logging.WARNING
            trace = error if is_bug else None
            _logger.log(level, message, "bug: " * is_bug, self._shard.partition, error, exc_info=trace)
        is_damage = is_bug or isinstance(error, CorruptLog)
        self._timers.call_later(_DAMAGED_RETRY_S if is_damage else _RETRY_S, self._again)

    def _again(self) -> None:
        if self._shard.is_closed:
            return
        self._steps = self._read()
        self._go_on()

    def _tell_progress(self) -> None:
        now_s = self._shard.environment.clock.monotonic_s()
        if now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            _logger.info("partition %d: loading groups, %d records so far", self._shard.partition, self._keys)

    def _tell_uncommitted(self) -> None:
        if self._shard.is_closed:
            return
        message = "partition %d: groups are read, but not all of it is committed yet: waiting for the other replicas"
        _logger.warning(message, self._shard.partition)


def _begin_to_serve(shard: GroupShard) -> Iterator[None]:
    """Sessions run from now on, and offsets go whose topics went meanwhile."""
    restored = iter(list(shard.tables.groups.values()))
    while some := list(islice(restored, _SERVED_AT_ONCE)):
        shard.serve(some)
        yield
    yield from forget_deleted_topics(shard)
