"""How a shard comes to know its groups: it reads its partition from the start, a slice a turn of the loop."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas_broker.coordinators.groups.record_fields import MalformedRecord
from barnabas_broker.coordinators.groups.records import decode
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.tables import GroupTables
from barnabas_broker.coordinators.groups.writer import KeyValue
from barnabas_broker.storage.errors import StorageError
from barnabas_core.errors import ApiError

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_PROGRESS_S: Final = 2.0
_DONE: Final = object()


class Loader:
    """Loads one shard. Until it is done, clients are told that the coordinator is loading."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._records = 0
        self._started_s = self._told_s = shard.environment.clock.monotonic_s()

    def start(self) -> None:
        """Begin, or begin anew after a failure."""
        self._shard.tables = GroupTables()
        self._records = 0
        self._turn(self._load())

    def _turn(self, load: Iterator[None]) -> None:
        """One slice, and the next one later; a log that cannot be read is tried again."""
        if self._shard.is_closed:
            return
        timers = self._shard.environment.timers
        try:
            done = next(load, _DONE) is _DONE
        except (ApiError, StorageError) as error:
            _logger.warning("loading groups of partition %d: %s; trying again", self._shard.partition, error)
            timers.call_later(_RETRY_S, self.start)
            return
        if not done:
            self._tell_progress()
            timers.call_soon(lambda: self._turn(load))

    def _load(self) -> Iterator[None]:
        shard = self._shard
        for key_values in shard.environment.log.read(shard.partition):
            self._apply(key_values)
            yield
        yield from shard.tables.restore_groups(shard.now())
        shard.loaded(list(shard.tables.groups.values()))
        seconds = shard.environment.clock.monotonic_s() - self._started_s
        groups, offsets = len(shard.tables.groups), sum(map(len, shard.tables.offsets.values()))
        message = "partition %d: loaded %d groups and %d offsets from %d records in %.2f s"
        level = logging.INFO if self._records else logging.DEBUG
        _logger.log(level, message, shard.partition, groups, offsets, self._records, seconds)

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
