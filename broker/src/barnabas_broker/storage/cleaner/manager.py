"""The log cleaner: it picks the dirtiest log, has the helper process rewrite it, and swaps in the new segments.

A partition whose compaction fails is retried later, while compaction continues with other partitions.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.storage.cleaner.cleaned_segment import SLOT_BYTES
from barnabas_broker.storage.errors import InvalidBatch, StorageError, SyncFailed, storage_error
from barnabas_broker.storage.helper import (
    RECORDS_BYTES_MAX,
    CleanSegments,
    Failed,
    Helper,
    HelperDied,
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
from barnabas_broker.storage.segments.indexes import RELATIVE_OFFSET_MAX, AbortedTransaction
from barnabas_broker.storage.segments.segment import Segment
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.loop_turns import FairTurn, Steps
from barnabas_core.topic_partition import TopicPartition

FIRST_MS_MIN: Final = 1000
PAUSE_MS_MAX: Final = 15 * 60 * 1000


class FailedPartition(msgspec.Struct, frozen=True):
    """A partition whose compaction failed `attempts` times in a row; the next attempt is at `retry_ms` (epoch time)."""

    attempts: int
    reason: str
    retry_ms: int
    log_dir: str
    dirty_bytes: int


class Backoff:
    """The partitions whose compaction failed, and the pause before the retry of each."""

    def __init__(self) -> None:
        self.failed: dict[TopicPartition, FailedPartition] = {}
        self.failures_total = 0

    def may_try(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """True if the last compaction of the partition did not fail, or if the time of the retry has come."""
        failed = self.failed.get(topic_partition)
        return failed is None or now_ms >= failed.retry_ms

    def failure(
        self, topic_partition: TopicPartition, reason: str, log_dir: str, dirty_bytes: int, first_ms: int, now_ms: int
    ) -> FailedPartition:
        """Record a failed compaction; return the number of failures in a row and the time of the retry.

        The pause before the retry doubles with each failure in a row, from `first_ms` (at least 1 s) to 15 minutes.
        """
        earlier = self.failed.get(topic_partition)
        attempts = earlier.attempts + 1 if earlier else 1
        pause_ms = min(max(first_ms, FIRST_MS_MIN) << min(attempts - 1, 20), PAUSE_MS_MAX)
        failed = FailedPartition(attempts, reason, now_ms + pause_ms, log_dir, dirty_bytes)
        self.failed[topic_partition] = failed
        self.failures_total += 1
        return failed

    def success(self, topic_partition: TopicPartition) -> None:
        """Forget the failures of a partition that was compacted or deleted."""
        self.failed.pop(topic_partition, None)


class CleanerStats(msgspec.Struct):
    """The figures of compaction since the broker started; percentages are from 0 to 100."""

    rounds: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_not_understood: int = 0
    max_dirty_percent: float = 0.0
    """The dirty percentage of the dirtiest log at the last check."""
    recopy_percent: float = 0.0
    """The bytes written as a percentage of the bytes read, in the last compaction of a log."""
    map_utilization_percent: float = 0.0
    """The percentage of the key map that the last compaction of a log used."""
    last_round_s: float = 0.0
    longest_round_s: float = 0.0
    last_search_s: float | None = None
    """The monotonic time (s) of the last search for the dirtiest log; None before the first search."""


class DirtySection(msgspec.Struct, frozen=True):
    """The section of a log that is not compacted yet and may be compacted now."""

    start_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """True if the first batch of a dirty segment is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes among the bytes that a compaction of the log would read, 0 to 1."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """True if `ratio` is above `min.cleanable.dirty.ratio`, or a dirty segment is too old (`is_overdue`)."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


def dirty_section(log: Log, stable_offset: int, now_ms: int) -> DirtySection:
    """Return the section of the log that can be compacted now.

    The section has whole segments, without the active segment. It ends before the first segment with records younger
    than `min.compaction.lag.ms`, and at or below `stable_offset` and the recovery point: above the recovery point, a
    power failure could lose the newest value of a key after compaction has removed the older value. Raises OSError or
    InvalidBatch if the timestamps of a segment cannot be read.
    """
    start = max(log.log_start_offset, log.compaction.clean_until or 0)
    safe_end, config = min(stable_offset, log.syncs.recovery_point), log.config
    cleanable: list[tuple[Segment, int]] = []
    for segment, following in pairwise(log.segments):
        is_dirty = following.base_offset > start
        if following.base_offset > safe_end or (is_dirty and _is_young(segment, config, now_ms)):
            break
        cleanable.append((segment, following.base_offset))
    dirty = [segment for segment, segment_end in cleanable if segment_end > start]
    clean_bytes = sum(segment.size_bytes for segment, segment_end in cleanable if segment_end <= start)
    end = cleanable[-1][1] if cleanable else start
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    return DirtySection(start, max(start, end), clean_bytes, dirty_bytes, _is_overdue(dirty, config, now_ms))


def _is_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.largest_timestamp()[0] > now_ms - lag_ms


def _is_overdue(dirty: Iterable[Segment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == LONG_MAX:
        return False
    oldest_ms = (segment.first_timestamp_ms for segment in dirty)
    return any(0 <= timestamp_ms < now_ms - config.max_compaction_lag_ms for timestamp_ms in oldest_ms)


def segments_to_rewrite(log: Log, end_offset: int) -> list[list[Segment]]:
    """Return the segments that begin below `end_offset`, in groups that each become one new segment.

    A group respects `segment.bytes`, `segment.index.bytes`, and the 2^31 offsets that index entries can express.
    """
    bounds = [(one, following.base_offset) for one, following in pairwise(log.segments)]
    groups: list[list[Segment]] = []
    for segment, segment_end in bounds:
        if segment.base_offset >= end_offset:
            break
        if groups and _fits(groups[-1], segment, segment_end, log.config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[Segment], segment: Segment, segment_end: int, config: LogConfig) -> bool:
    together = [*group, segment]
    return (
        sum(each.size_bytes for each in together) <= config.segment_bytes
        and sum(each.indexes.size_bytes for each in together) <= config.index_bytes_max
        and segment_end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )


_logger: Final = logging.getLogger(__name__)


class RoundFailed(Exception):
    """A failure of a compaction in the helper process; the message gives the reason."""


class LogChanged(Exception):
    """The error that stops a compaction because the log has changed.

    The log was deleted, truncated or shortened by retention, or refuses appends until its checkpoints are written.
    """


class DirtyLog(NamedTuple):
    """A log, the section to compact, and how often the log was truncated before the compaction."""

    log: Log
    section: DirtySection
    truncations: int


class LogCleaner:
    """The compaction of all logs, each up to its `stable_offset`: the high watermark or the last stable offset.

    `on_storage_error` is called with the disk errors of a compaction, for example after a failed sync, or after a
    failure in the middle of a swap of segments.
    """

    def __init__(
        self,
        logs: LogManager,
        helper: Helper,
        timers: Timers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        stable_offset: Callable[[TopicPartition], int],
        on_storage_error: Callable[[TopicPartition, StorageError], None],
    ) -> None:
        self.stats = CleanerStats()
        self.backoff = Backoff()
        self._logs = logs
        self._helper = helper
        self._timers = timers
        self._clock = clock
        self._config = config
        self._stable_offset = stable_offset
        self._on_storage_error = on_storage_error
        self._steps = Steps()
        self._task: asyncio.Task[object] | None = None

    @property
    def helper_starts(self) -> int:
        """The number of times that the helper process was started; an idle process is stopped until it is needed."""
        return self._helper.starts

    def start(
        self,
        supervise: Callable[[str, Coroutine[object, object, None], Callable[[], object]], asyncio.Task[object]],
    ) -> None:
        """Start the task that compacts all dirty logs every `log.cleaner.backoff.ms`.

        `supervise` receives the task's name, its coroutine, and a function that returns the task's progress. A result
        that stays the same shows that the task hangs.
        """
        self._task = supervise("cleaner", self._run(), lambda: (self._steps.progress(), self._helper.signs_of_life))

    async def stop(self) -> None:
        """Stop compaction and the helper process. The next start of the broker removes unfinished files."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._helper.stop()

    async def _run(self) -> None:
        while True:
            await self._pause(self._config().log_cleaner_backoff_ms / 1000)
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
            _logger.exception("compaction failed; the next attempt is in %d ms", self._config().log_cleaner_backoff_ms)

    async def clean_dirtiest(self) -> bool:
        """Compact the log with the largest dirty ratio.

        Return False if no log is due, or if the log changed during its compaction; the caller then pauses.
        """
        dirtiest = await self._dirtiest() if self._config().log_cleaner_enable else None
        if dirtiest is None:
            return False
        log, section, _ = dirtiest
        started_s = self._clock.monotonic_s()
        try:
            await self._clean(dirtiest)
        except LogChanged as changed:
            _logger.info("%s: the compaction was stopped because %s", log.topic_partition, changed)
            return False
        except (RoundFailed, HelperDied, StorageError, InvalidBatch, OSError) as error:
            self._failed(log, section, str(error))
            self._report(log, error)
        else:
            self.backoff.success(log.topic_partition)
            self._count_round(self._clock.monotonic_s() - started_s)
        return True

    async def _dirtiest(self) -> DirtyLog | None:
        """Return the log with the largest dirty ratio that is due and not waiting for a retry, or None."""
        now_ms = self._clock.now_ms()
        for gone in [each for each in self.backoff.failed if self._logs.get(each) is None]:
            self.backoff.success(gone)
        sections = [
            dirty
            async for log in FairTurn(self._clock).over(self._logs.online_logs())
            if log.config.compacted and self.backoff.may_try(log.topic_partition, now_ms)
            if self._logs.get(log.topic_partition) is log
            and not log.known_producers.are_held_back
            and (dirty := self._dirty(log, now_ms)) is not None
        ]
        self.stats.last_search_s = self._clock.monotonic_s()
        self.stats.max_dirty_percent = 100 * max((each.section.ratio for each in sections), default=0.0)
        due = [each for each in sections if each.section.is_due(each.log.config)]
        return max(due, key=lambda each: each.section.ratio, default=None)

    def _dirty(self, log: Log, now_ms: int) -> DirtyLog | None:
        stable_offset = self._stable_offset(log.topic_partition)
        try:
            return DirtyLog(log, dirty_section(log, stable_offset, now_ms), log.segments.truncations)
        except (OSError, InvalidBatch) as error:
            self._failed(log, None, str(error))
            return None

    async def _clean(self, dirty: DirtyLog) -> None:
        log = dirty.log
        mapped = await self._map_keys(log, dirty.section)
        self._check_unchanged(dirty, ())
        self.stats.map_utilization_percent = (
            100 * mapped.keys * SLOT_BYTES / self._config().log_cleaner_dedupe_buffer_size
        )
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
        config = self._config()
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
                map_bytes_max=config.log_cleaner_dedupe_buffer_size,
                load_factor=config.log_cleaner_io_buffer_load_factor,
                read_bytes=config.log_cleaner_io_buffer_size,
                unpacked_bytes_max=RECORDS_BYTES_MAX,
                bytes_per_s=config.log_cleaner_io_max_bytes_per_second,
            )
        )
        assert isinstance(answer, KeysMapped), "the helper must answer MapKeys with KeysMapped"
        return answer

    async def _aborted_below(self, log: Log, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records below `end_offset`; their markers may be in later segments."""
        return [
            aborted
            async for segment in FairTurn(self._clock).over(list(log.segments))
            if segment.transactions
            for aborted in segment.transactions.overlapping(0, end_offset)[0]
        ]

    async def _rewrite(self, dirty: DirtyLog, group: list[Segment], rules: RetentionRules) -> None:
        """Have the helper write one compacted segment; replace the segments of `group` by the compacted segment."""
        log, config = dirty.log, self._config()
        self._check_unchanged(dirty, group)
        cleaned = await self._ask(
            CleanSegments(
                directory=log.directory,
                segments=_sources(group),
                rules=rules,
                index_interval_bytes=log.config.index_interval_bytes,
                read_bytes=config.log_cleaner_io_buffer_size,
                bytes_per_s=config.log_cleaner_io_max_bytes_per_second,
            )
        )
        assert isinstance(cleaned, SegmentCleaned), "the helper must answer CleanSegments with SegmentCleaned"
        await self._swap(dirty, group, cleaned.base_offset, rules.end_offset)
        self._count(cleaned)

    async def _swap(self, dirty: DirtyLog, group: list[Segment], base_offset: int, mapped_end: int) -> None:
        """Replace the segments of `group` by the compacted segment.

        The files are renamed on the event loop, so that the log cannot change meanwhile. A thread then syncs the
        directory.
        """
        log = dirty.log
        self._check_unchanged(dirty, group)
        log.compaction.superseded_below(mapped_end)
        log.replace_segments(group, [base_offset], self._clock.now_ms())
        await self._logs.disk_threads.run(log.log_dir, partial(self._logs.files.sync_dir, log.directory))

    def _check_unchanged(self, dirty: DirtyLog, group: Sequence[Segment]) -> None:
        """Raise LogChanged if the log was deleted or truncated, refuses appends, or lacks a segment of `group`."""
        log = dirty.log
        if self._logs.get(log.topic_partition) is not log:
            raise LogChanged("the log was deleted or replaced")
        if log.segments.truncations != dirty.truncations:
            raise LogChanged("the log was truncated")
        if log.known_producers.are_held_back:
            raise LogChanged("the log takes no appends until its checkpoints are written")
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
            log.topic_partition, reason, log.log_dir, dirty_bytes, self._config().log_cleaner_backoff_ms, now_ms
        )
        _logger.warning(
            "%s could not be compacted (%d failures in a row): %s; the next attempt is in %d s",
            log.topic_partition,
            failed.attempts,
            reason,
            (failed.retry_ms - now_ms) // 1000,
        )

    def _report(self, log: Log, error: Exception) -> None:
        """Pass a storage error or a failed sync to `on_storage_error`; ignore any other error."""
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
