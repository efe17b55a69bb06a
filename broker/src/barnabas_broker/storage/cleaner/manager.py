"""The compaction of all logs, one at a time, on the loop: it picks the dirtiest log, has it rewritten, and swaps it.

The work on records is the helper process's. Nothing that goes wrong here stops compaction: a partition that fails is
tried again later, the others go on.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.storage.cleaner.backoff import Backoff
from barnabas_broker.storage.cleaner.offset_map import SLOT_BYTES
from barnabas_broker.storage.cleaner.planning import DirtySection, dirty_section, segments_to_rewrite
from barnabas_broker.storage.cleaner.settings import CleanerSettings
from barnabas_broker.storage.cleaner.stats import CleanerStats
from barnabas_broker.storage.errors import InvalidBatch, StorageError, SyncFailed, storage_error
from barnabas_broker.storage.helper.helper import Helper, HelperDied
from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX
from barnabas_broker.storage.helper.requests import (
    CleanSegments,
    Failed,
    KeysMapped,
    MapKeys,
    Request,
    Response,
    RetentionRules,
    SegmentCleaned,
    SourceSegment,
)
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_core.clock import Clock, Timers
from barnabas_core.fair_turns import FairTurn
from barnabas_core.steps import Steps
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


class RoundFailed(Exception):
    """The helper process failed in a round; the message says why."""


class LogChanged(Exception):
    """The log was deleted, truncated or shortened by retention meanwhile, so that the result no longer fits it."""


class DirtyLog(NamedTuple):
    """A log and the section that a round compacts. The round is void if the log is truncated after `truncations`."""

    log: Log
    section: DirtySection
    truncations: int


class LogCleaner:
    """The compaction of all logs. `stable_offset` bounds it: the high watermark, or the last stable offset.

    `on_storage_error` is called for disk errors of a round: a partition whose swap failed half-way must be loaded
    again, a directory whose sync failed is offline.
    """

    def __init__(
        self,
        logs: LogManager,
        helper: Helper,
        timers: Timers,
        clock: Clock,
        settings: Callable[[], CleanerSettings],
        stable_offset: Callable[[TopicPartition], int],
        on_storage_error: Callable[[TopicPartition, StorageError], None],
    ) -> None:
        self.stats = CleanerStats()
        self.backoff = Backoff()
        self._logs = logs
        self._helper = helper
        self._timers = timers
        self._clock = clock
        self._settings = settings
        self._stable_offset = stable_offset
        self._on_storage_error = on_storage_error
        self._steps = Steps()
        self._task: asyncio.Task[object] | None = None

    @property
    def helper_starts(self) -> int:
        """The number of times that the helper process was started; more than a few means that it dies."""
        return self._helper.starts

    def start(
        self,
        supervise: Callable[[str, Coroutine[object, object, None], Callable[[], object]], asyncio.Task[object]],
    ) -> None:
        """Look for dirty logs from now on, every `log.cleaner.backoff.ms` while there are none.

        `supervise` runs that, by its name, and watches how far it is: a round of hours goes on as the helper does.
        """
        self._task = supervise("cleaner", self._run(), lambda: (self._steps.progress(), self._helper.signs_of_life))

    async def stop(self) -> None:
        """End the helper process, also at work; the next round removes its unfinished files."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._helper.stop()

    async def _run(self) -> None:
        while True:
            await self._pause(self._settings().backoff_ms / 1000)
            await self._steps.count(self._clean_all())

    async def _pause(self, delay_s: float) -> None:
        over = asyncio.Event()
        timer = self._timers.call_later(delay_s, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def _clean_all(self) -> None:
        try:
            while await self.clean_dirtiest():
                pass
        except Exception:
            _logger.exception("compaction failed; it continues in %d ms", self._settings().backoff_ms)

    async def clean_dirtiest(self) -> bool:
        """One round on one log; whether there was one to be compacted, and it is worth looking for the next."""
        dirtiest = await self._dirtiest() if self._settings().is_enabled else None
        if dirtiest is None:
            return False
        log, section, _ = dirtiest
        started_s = self._clock.monotonic_s()
        try:
            await self._clean(dirtiest)
        except LogChanged as changed:
            _logger.info("%s: compaction begins again: %s", log.topic_partition, changed)
            return False
        except (RoundFailed, HelperDied, StorageError, InvalidBatch, OSError) as error:
            self._failed(log, section, str(error))
            self._tell(log, error)
        else:
            self.backoff.success(log.topic_partition)
            self._count_round(self._clock.monotonic_s() - started_s)
        return True

    async def _dirtiest(self) -> DirtyLog | None:
        """Return the log with the largest dirty share of those that are due, except those that failed lately."""
        now_ms = self._clock.now_ms()
        for gone in [each for each in self.backoff.failed if self._logs.get(each) is None]:
            self.backoff.success(gone)
        sections = [
            dirty
            async for log in FairTurn(self._clock).over(self._logs.online_logs())
            if log.config.compacted and self.backoff.may_try(log.topic_partition, now_ms)
            if self._logs.get(log.topic_partition) is log
            and log.takes_appends
            and (dirty := self._dirty(log, now_ms)) is not None
        ]
        self.stats.last_look_s = self._clock.monotonic_s()
        self.stats.max_dirty_percent = 100 * max((each.section.ratio for each in sections), default=0.0)
        due = [each for each in sections if each.section.is_due(each.log.config)]
        return max(due, key=lambda each: each.section.ratio, default=None)

    def _dirty(self, log: Log, now_ms: int) -> DirtyLog | None:
        stable_offset = self._stable_offset(log.topic_partition)
        try:
            return DirtyLog(log, dirty_section(log, stable_offset, now_ms), log.truncations)
        except (OSError, InvalidBatch) as error:
            self._failed(log, None, str(error))
            return None

    async def _clean(self, dirty: DirtyLog) -> None:
        log = dirty.log
        mapped = await self._map_keys(log, dirty.section)
        self._check_unchanged(dirty, ())
        self.stats.map_utilization_percent = 100 * mapped.keys * SLOT_BYTES / self._settings().map_bytes_max
        now_ms = self._clock.now_ms()
        rules = RetentionRules(
            end_offset=mapped.end_offset,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            last_offsets=log.producers.last_offsets(),
            epochs=log.producers.epochs_without_batches(),
            unpacked_bytes_max=RECORDS_BYTES_MAX,
        )
        before = self.stats.bytes_read, self.stats.bytes_written
        for group in segments_to_rewrite(log, mapped.end_offset):
            await self._rewrite(dirty, group, rules)
        read_bytes = self.stats.bytes_read - before[0]
        self.stats.recopy_percent = 100 * (self.stats.bytes_written - before[1]) / max(read_bytes, 1)
        await self._checkpoint(dirty, mapped.end_offset)

    async def _map_keys(self, log: Log, section: DirtySection) -> KeysMapped:
        settings = self._settings()
        dirty = [
            each for each in log.segments.starting_at(section.start_offset) if each.base_offset < section.end_offset
        ]
        answer = await self._ask(
            MapKeys(
                directory=log.directory,
                segments=_sources(dirty),
                start_offset=section.start_offset,
                end_offset=section.end_offset,
                aborted=await self._aborted_below(log, section.end_offset),
                map_bytes_max=settings.map_bytes_max,
                load_factor=settings.load_factor,
                read_bytes=settings.read_bytes,
                unpacked_bytes_max=RECORDS_BYTES_MAX,
                bytes_per_s=settings.bytes_per_s,
            )
        )
        assert isinstance(answer, KeysMapped), "the answer to MapKeys"
        return answer

    async def _aborted_below(self, log: Log, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records below an offset; their markers may be in any later segment."""
        return [
            aborted
            async for segment in FairTurn(self._clock).over(list(log.segments))
            if segment.transactions
            for aborted in segment.transactions.since(0)
            if aborted.first_offset < end_offset
        ]

    async def _rewrite(self, dirty: DirtyLog, group: list[Segment], rules: RetentionRules) -> None:
        """Have one new segment written, and put it in the place of `group`."""
        log, settings = dirty.log, self._settings()
        self._check_unchanged(dirty, group)
        cleaned = await self._ask(
            CleanSegments(
                directory=log.directory,
                segments=_sources(group),
                rules=rules,
                index_interval_bytes=log.config.index_interval_bytes,
                read_bytes=settings.read_bytes,
                bytes_per_s=settings.bytes_per_s,
            )
        )
        assert isinstance(cleaned, SegmentCleaned), "the answer to CleanSegments"
        await self._swap(dirty, group, cleaned.base_offset, rules.end_offset)
        self._count(cleaned)

    async def _swap(self, dirty: DirtyLog, group: list[Segment], base_offset: int, mapped_end: int) -> None:
        """Rename all files at once on the loop, so that nothing changes the log meanwhile; a thread syncs them."""
        log = dirty.log
        self._check_unchanged(dirty, group)
        log.compaction.superseded_below(mapped_end)
        log.replace_segments(group, [base_offset], self._clock.now_ms())
        await self._logs.disk_threads.run(log.log_dir, partial(self._logs.files.sync_dir, log.directory))

    def _check_unchanged(self, dirty: DirtyLog, group: Sequence[Segment]) -> None:
        """Raise LogChanged if the log has changed: a truncation may have cut a segment, or records of the key map."""
        log = dirty.log
        if self._logs.get(log.topic_partition) is not log:
            raise LogChanged("the partition is gone")
        if log.truncations != dirty.truncations:
            raise LogChanged("it was truncated")
        if not log.takes_appends:
            raise LogChanged("it waits for its checkpoints")
        if not set(group) <= set(log.segments):
            raise LogChanged("segments were deleted")

    async def _ask(self, request: Request) -> Response:
        answer = await self._helper.request(request)
        if isinstance(answer, Failed) and answer.sync_failed:
            raise SyncFailed(OSError(errno.EIO, answer.message))
        if isinstance(answer, Failed):
            raise RoundFailed(answer.message)
        return answer

    async def _checkpoint(self, dirty: DirtyLog, end_offset: int) -> None:
        log = dirty.log
        self._check_unchanged(dirty, ())
        log.compaction.ended(end_offset)
        log_dir = next(each for each in self._logs.log_dirs if each.path == log.log_dir)
        await self._logs.disk_threads.run(log.log_dir, log_dir.checkpoint_clean_offsets)

    def _failed(self, log: Log, section: DirtySection | None, reason: str) -> None:
        now_ms = self._clock.now_ms()
        dirty_bytes = section.dirty_bytes if section else 0
        failed = self.backoff.failure(
            log.topic_partition, reason, log.log_dir, dirty_bytes, self._settings().backoff_ms, now_ms
        )
        _logger.warning(
            "%s could not be compacted (%d. time): %s; tried again in %d s",
            log.topic_partition,
            failed.attempts,
            reason,
            (failed.retry_ms - now_ms) // 1000,
        )

    def _tell(self, log: Log, error: Exception) -> None:
        """A swap that failed half-way, a sync that failed: more than this round is at stake."""
        if isinstance(error, SyncFailed):
            error = storage_error(log.log_dir, log.directory, error)
        if isinstance(error, StorageError):
            self._on_storage_error(log.topic_partition, error)

    def _count(self, cleaned: SegmentCleaned) -> None:
        stats, counts = self.stats, cleaned.counts
        stats.bytes_read += cleaned.bytes_read
        stats.bytes_written += cleaned.size_bytes
        stats.records_read += counts.records_read
        stats.records_kept += counts.records_kept
        stats.records_without_key += counts.records_without_key
        stats.batches_not_understood += counts.batches_not_understood

    def _count_round(self, took_s: float) -> None:
        self.stats.rounds += 1
        self.stats.last_round_s = took_s
        self.stats.longest_round_s = max(self.stats.longest_round_s, took_s)


def _sources(segments: Sequence[Segment]) -> list[SourceSegment]:
    return [SourceSegment(each.base_offset, each.size_bytes) for each in segments]
