"""Known mistakes of compaction in truncated logs, each planted by a patch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from barnabas_broker.storage.cleaner.manager import DirtyLog, LogCleaner
from barnabas_broker.storage.logs import log_loader
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import cut, truncate_fully_and_start_at
from barnabas_broker.storage.segments.segment import Segment
from simulation.set_ups import maps_keys_until_a_truncation


@contextmanager
def keeps_what_is_left_of_a_compacted_log_that_was_cut() -> Iterator[None]:
    """A truncated log keeps the rest as in Kafka: without values removed for newer ones that are now truncated."""

    def mistaken(log: Log, offset: int) -> None:
        if offset >= log.log_end_offset:
            log.epochs.truncate_from_end(log.log_end_offset)
        elif offset < log.segments.first.base_offset:
            truncate_fully_and_start_at(log, offset, 0)
        else:
            cut(log, offset)

    with patch("barnabas_broker.replication.leader_replica.truncate_to", mistaken):
        yield


@contextmanager
def forgets_a_round_of_compaction_that_a_crash_ended() -> Iterator[None]:
    """A round that a crash ended is forgotten; the removed values are missed only once the log is truncated."""
    load = log_loader._load

    def mistaken(*arguments: Any) -> Log:
        log = load(*arguments)
        log.compaction.superseded_until = 0
        return log

    with patch.object(log_loader, "_load", mistaken):
        yield


@contextmanager
def goes_on_with_a_round_after_a_truncation() -> Iterator[None]:
    """The round goes on, and removes values for newer ones that have been truncated."""
    check = LogCleaner._check_unchanged

    def mistaken(self: LogCleaner, dirty: DirtyLog, group: Sequence[Segment]) -> None:
        check(self, dirty._replace(truncations=dirty.log.segments.truncations), group)

    with maps_keys_until_a_truncation(), patch.object(LogCleaner, "_check_unchanged", mistaken):
        yield
