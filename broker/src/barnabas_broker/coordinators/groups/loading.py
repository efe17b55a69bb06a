"""How shards come to know their groups: each reads its partition from the start to its end.

A new leader has all that was ever committed and perhaps more, which may be committed yet or already is without its
knowledge. So it reads everything, and serves once its high watermark has reached what it has read.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas_broker.coordinators.groups.record_fields import MalformedRecord
from barnabas_broker.coordinators.groups.records import decode
from barnabas_broker.coordinators.groups.removal import forget_missing_topics
from barnabas_broker.coordinators.groups.shard import Environment, GroupShard
from barnabas_broker.coordinators.groups.tables import GroupTables
from barnabas_broker.coordinators.groups.writer import KeyValue
from barnabas_broker.storage.errors import StorageError
from barnabas_core.clock import Cancellable
from barnabas_core.errors import ApiError

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_PROGRESS_S: Final = 2.0
_DONE: Final = object()


class Loader:
    """Loads the shards of a broker one after another, a slice a turn of the loop: after a failover they may be many.

    Until a shard is loaded clients are told that its coordinator is loading.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._queue: deque[_Loading] = deque()

    def load(self, shard: GroupShard) -> None:
        """Begin with it when those before are done."""
        self.enqueue(_Loading(shard, self))

    def enqueue(self, loading: "_Loading") -> None:
        """It has something to do."""
        if not self._queue:
            self._environment.timers.call_soon(self._turn)
        self._queue.append(loading)

    def _turn(self) -> None:
        if not self._queue[0].advance():
            self._queue.popleft()
        if self._queue:
            self._environment.timers.call_soon(self._turn)


class _Loading:
    """One shard on its way."""

    def __init__(self, shard: GroupShard, loader: Loader) -> None:
        self._shard = shard
        self._loader = loader
        self._timers = shard.environment.timers
        self._records = 0
        self._started_s = self._told_s = shard.environment.clock.monotonic_s()
        self._steps = self._read()
        self._patience: Cancellable | None = None
        self._complaint = ""

    def advance(self) -> bool:
        """Do one slice; False when there is nothing more to do for now. A log that cannot be read is tried again."""
        if self._shard.is_closed:
            return False
        try:
            more = next(self._steps, _DONE) is not _DONE
        except (ApiError, StorageError) as error:
            self._failed(error)
            return False
        self._tell_progress()
        return more

    def _read(self) -> Iterator[None]:
        shard = self._shard
        shard.tables = GroupTables()
        self._records = 0
        for key_values in shard.environment.log.read(shard.partition):
            self._apply(key_values)
            yield
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
        self._loader.enqueue(self)

    def _restore(self) -> Iterator[None]:
        shard = self._shard
        yield from shard.tables.restore_groups(shard.now())
        shard.loaded(list(shard.tables.groups.values()))
        forget_missing_topics(shard)
        seconds = shard.environment.clock.monotonic_s() - self._started_s
        groups, offsets = len(shard.tables.groups), sum(map(len, shard.tables.offsets.values()))
        message = "partition %d: loaded %d groups and %d offsets from %d records in %.2f s"
        level = logging.INFO if self._records else logging.DEBUG
        _logger.log(level, message, shard.partition, groups, offsets, self._records, seconds)

    def _failed(self, error: Exception) -> None:
        """Once more, a little later; the same reason is told once."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            _logger.warning("loading groups of partition %d: %s; trying again", self._shard.partition, error)
        self._timers.call_later(_RETRY_S, self._again)

    def _again(self) -> None:
        self._steps = self._read()
        self._loader.enqueue(self)

    def _apply(self, key_values: Sequence[KeyValue]) -> None:
        """A record that cannot be read is left out, and said so: the other groups of the partition need not suffer."""
        self._records += len(key_values)
        for key, value in key_values:
            try:
                record = decode(key, value)
            except MalformedRecord as error:
                message = "partition %d: left out a record with key %s: %s"
                _logger.error(message, self._shard.partition, key[:64].hex(), error)
                continue
            if record is not None:
                self._shard.tables.apply(record)

    def _tell_progress(self) -> None:
        now_s = self._shard.environment.clock.monotonic_s()
        if now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            _logger.info("partition %d: loading groups, %d records so far", self._shard.partition, self._records)

    def _tell_uncommitted(self) -> None:
        if self._shard.is_closed:
            return
        message = "partition %d: groups are read, but not all of it is committed yet: waiting for the other replicas"
        _logger.warning(message, self._shard.partition)
