"""A share partition at the leader of its partition: what it decides is stored, one write after the other.

The persister has its state. While a write is under way, what is decided meanwhile waits, and is stored together. A
member's acknowledgements are answered when they are stored, and taken back if that fails; releases are never taken
back, and are stored again.
"""

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Final

import msgspec

from barnabas_broker.coordinators.share_delivery.reading import readable_end
from barnabas_broker.coordinators.share_delivery.share_partition import (
    NEVER_MS,
    AcknowledgementBatch,
    Acquired,
    Limits,
    ShareChange,
    SharePartition,
)
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.coordinators.share_state.persister import Outcomes, SharePersister
from barnabas_broker.coordinators.share_state.share_state import (
    UNKNOWN_OFFSET,
    ReadEntry,
    ShareOutcome,
    StateBatch,
    WriteEntry,
)
from barnabas_broker.replication.leader_replica import WaitList
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.errors import StorageError
from barnabas_core.clock import Cancellable, Clock, Timers, monotonic_ms
from barnabas_core.config.group_configs import ShareGroupConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

log = logging.getLogger(__name__)

STORE_AGAIN_S: Final = 1.0
"""The pause in seconds before a release that could not be stored is stored again."""

OnStored = Callable[[ApiError | None], object]


class Life(Enum):
    """The states of a share partition at its leader; it begins as one that is not in memory."""

    INITIALIZING = "initializing"
    """The stored state is being read."""
    ACTIVE = "active"
    """Records are delivered."""
    FAILED = "failed"
    """The stored state could not be read; the next fetch begins again."""
    FENCED = "fenced"
    """The broker leads no longer, or the group or the topic is gone; the next fetch begins again."""


LIFE: Final[Mapping[Life, frozenset[Life]]] = {
    Life.INITIALIZING: frozenset({Life.ACTIVE, Life.FAILED, Life.FENCED}),
    Life.ACTIVE: frozenset({Life.FENCED}),
    Life.FAILED: frozenset(),
    Life.FENCED: frozenset(),
}
"""The states that can follow each state."""

_FENCED: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    }
)
"""The errors of the persister after which the state in memory counts no more."""

_ANSWERS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The error codes of clients for errors of the persister; others are UNKNOWN_SERVER_ERROR, as in Kafka."""


class DeliveryCounts:
    """The counts of a group's deliveries on this broker."""

    def __init__(self) -> None:
        self.acknowledgements = [0, 0, 0, 0, 0]
        """The number of acknowledged records by the number of the acknowledgement type."""
        self.first_deliveries = 0
        self.later_deliveries = 0
        self.lock_timeouts = 0
        self.dead_letters = 0
        self.dead_letters_failed = 0
        """The number of tries to write a dead letter that failed, and are made again."""
        self.dead_letters_impossible = 0
        """The number of records that were archived without a dead letter, because the setting is broken."""
        self.dead_letters_in_circle = 0
        """The number of dead letters of records that are dead letters of the topic that takes them."""

    def deliver(self, acquired: Iterable[Acquired]) -> None:
        """Count records that a member gets."""
        for each in acquired:
            if each.delivery_count > 1:
                self.later_deliveries += each.last - each.first + 1
            else:
                self.first_deliveries += each.last - each.first + 1

    @property
    def are_zero(self) -> bool:
        """True if nothing was counted yet."""
        others = (self.lock_timeouts, self.dead_letters, self.dead_letters_failed, self.dead_letters_impossible)
        return not any(self.acknowledgements) and not any(others) and not self.first_deliveries + self.later_deliveries


class LedEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of share partitions."""

    persister: SharePersister
    clock: Clock
    timers: Timers
    config_of: Callable[[str], ShareGroupConfig]
    has_dead_letters: Callable[[], bool]
    start_of: Callable[["LedPartition", Callable[[int | ApiError], object]], object]
    """A function that finds the offset at which a group begins, by `share.auto.offset.reset`."""
    write_dead_letters: Callable[["LedPartition"], object]
    """A function that writes the dead letters of records that wait for them."""
    on_end: Callable[["LedPartition"], object]
    on_rest: Callable[["LedPartition"], object]
    """A function that is called when all changes are stored."""


class _Submitted(msgspec.Struct, frozen=True):
    change: ShareChange
    answer: OnStored
    is_taken_back: bool
    """True if the change is taken back if it cannot be stored."""


class LedPartition:
    """A share partition whose partition this broker leads, in one leader epoch."""

    def __init__(
        self,
        environment: LedEnvironment,
        group_id: str,
        key: TopicIdPartition,
        hosted: Partition,
        waiters: WaitList,
        counts: DeliveryCounts,
    ) -> None:
        self._environment = environment
        self.group_id = group_id
        self.key = key
        self.hosted = hosted
        self.leader_epoch = hosted.leader_epoch
        self.waiters = waiters
        """The requests that wait for records that become available."""
        self.counts = counts
        self.life = Life.INITIALIZING
        self.failure: ApiError | None = None
        self.records = SharePartition(0, (), 0)
        self.is_reading = False
        """True while a request reads records to acquire, because only one may do so at a time."""
        self.is_offered = False
        """True while a request that waited is about to read, so that the others need not be woken."""
        self.doubtful: set[int] = set()
        """The offsets whose dead letters may be there already, because another leader began with them, or an append
        has failed."""
        self._state_epoch = 0
        self._submitted: list[_Submitted] = []
        self._writing: list[_Submitted] = []
        self._timer: Cancellable | None = None
        self._timer_ms = NEVER_MS
        self._again: Cancellable | None = None

    @property
    def config(self) -> ShareGroupConfig:
        """The settings of the group as they are now."""
        return self._environment.config_of(self.group_id)

    @property
    def limits(self) -> Limits:
        """The limits of deliveries, from the settings of the group."""
        config = self.config
        writes_dead_letters = bool(config.dead_letter_topic) and self._environment.has_dead_letters()
        return Limits(
            config.delivery_count_limit,
            config.partition_max_record_locks,
            config.record_lock_duration_ms,
            writes_dead_letters,
        )

    @property
    def now_ms(self) -> int:
        """The monotonic time in milliseconds."""
        return monotonic_ms(self._environment.clock)

    @property
    def oldest_age_ms(self) -> int:
        """The ms since the first record of the window came into it; 0 if the window is empty."""
        ranges = self.records.window.ranges
        return max(self.now_ms - ranges[0].since_ms, 0) if ranges else 0

    @property
    def is_idle(self) -> bool:
        """True if nothing is being stored or waits for a dead letter, so the partition can leave the memory."""
        return not self._submitted and not self._writing and not self.records.count(RecordState.ARCHIVING)

    @property
    def next_fetch_offset(self) -> int | None:
        """The first offset that a member may acquire now; None if there is none.

        Nothing is delivered while more batches wait to be stored than records may be in flight: while the state cannot
        be written, each lock that ends adds one, for as long as members take records.
        """
        limits = self.limits
        unstored = sum(len(each.change.batches) for each in self._submitted)
        return None if unstored > limits.record_locks else self.records.next_fetch_offset(limits)

    @property
    def may_be_taken(self) -> bool:
        """True if there is something for a request that waits: records that no other request takes, or an error."""
        if self.life is not Life.ACTIVE:
            return True
        if self.is_offered or self.is_reading:
            return False
        offset = self.next_fetch_offset
        try:
            return offset is not None and offset < readable_end(self.hosted, is_committed=self.config.is_read_committed)
        except (ApiError, StorageError):
            return True

    def offer(self) -> None:
        """Wake a request that waits, if there is something for it."""
        if self.waiters.waiting and self.may_be_taken:
            self.waiters.mark()

    def _become(self, life: Life) -> None:
        assert life in LIFE[self.life], f"{self.life} cannot be followed by {life}"
        self.life = life

    def begin(self) -> None:
        """Read the stored state."""
        self._environment.persister.read(self.group_id, [ReadEntry(self.key, self.leader_epoch)], self._on_read)

    def _on_read(self, outcomes: Outcomes) -> None:
        outcome = outcomes[self.key]
        if self.life is not Life.INITIALIZING:
            return
        if outcome.error:
            self._fail(_answer_of(outcome))
            return
        self._state_epoch = outcome.state_epoch
        if outcome.start_offset == UNKNOWN_OFFSET:
            self._environment.start_of(self, self._on_start)
        else:
            self._activate(outcome.start_offset, outcome.batches)

    def _on_start(self, start: int | ApiError) -> None:
        """Store the start, unless the group begins at the earliest record: another leader would choose a later one."""
        if self.life is not Life.INITIALIZING:
            return
        if isinstance(start, ApiError):
            self._fail(start)
        elif self.config.auto_offset_reset.strategy == "earliest":
            self._activate(start, ())
        else:
            entry = WriteEntry(self.key, self._state_epoch, self.leader_epoch, start, 0, ())
            self._environment.persister.write(self.group_id, [entry], lambda outcomes: self._on_begun(start, outcomes))

    def _on_begun(self, start: int, outcomes: Outcomes) -> None:
        if self.life is Life.INITIALIZING and outcomes[self.key].error:
            self._fail(_answer_of(outcomes[self.key]))
        elif self.life is Life.INITIALIZING:
            self._activate(start, ())

    def _activate(self, start: int, batches: Iterable[StateBatch]) -> None:
        self.records = SharePartition(start, batches, self.now_ms)
        for each in self.records.waiting_for_dead_letters():
            self.doubtful.update(range(each.first, each.last + 1))
        self._become(Life.ACTIVE)
        self.changed()

    def _fail(self, error: ApiError) -> None:
        self.failure = error
        self._become(Life.FAILED)
        self.waiters.mark()
        self._environment.on_end(self)

    def stop(self) -> None:
        """End, because nobody uses the share partition, or another replica leads; answer what waits."""
        message = f"this broker no longer leads {self.hosted.topic_partition}"
        self.fence(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))

    def fence(self, error: ApiError) -> None:
        """End, because this broker no longer leads, or the group or topic is gone; answer what waits."""
        if self.life not in (Life.INITIALIZING, Life.ACTIVE):
            return
        self.failure = error
        self._become(Life.FENCED)
        self._stop_timers()
        ended, self._submitted, self._writing = [*self._writing, *self._submitted], [], []
        for each in ended:
            each.answer(error)
        self.waiters.mark()
        self._environment.on_end(self)

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        self._timer, self._again, self._timer_ms = None, None, NEVER_MS

    def check(self) -> None:
        """Raise ApiError if the state failed to load, or if this broker leads no longer in the same epoch."""
        if self.life in (Life.INITIALIZING, Life.ACTIVE):
            if self.hosted.leader is not None and self.hosted.leader_epoch == self.leader_epoch:
                return
            self.stop()
        assert self.failure is not None
        raise self.failure

    def acknowledge(self, member_id: str, batches: Iterable[AcknowledgementBatch], answer: OnStored) -> None:
        """Acknowledge records of a member, and call `answer` once that is stored, or with the error."""
        try:
            self.check()
            if self.life is not Life.ACTIVE:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, "no record was delivered by this leader yet")
            batches = list(batches)
            change = self.records.acknowledge(member_id, batches, self.now_ms, self.limits)
        except ApiError as error:
            answer(error)
            return
        self._submit(change, partial(self._acknowledged, batches, answer), is_taken_back=True)

    def _acknowledged(self, batches: Iterable[AcknowledgementBatch], answer: OnStored, error: ApiError | None) -> None:
        """Count acknowledgements once they are stored, and answer."""
        for batch in batches if error is None else ():
            each = (batch.last - batch.first + 1) // len(batch.types)
            for kind in batch.types:
                self.counts.acknowledgements[kind] += each
        answer(error)

    def release(self, member_id: str) -> None:
        """Release what a member has acquired, because its session has ended."""
        if self.life is Life.ACTIVE:
            self._submit(self.records.release_all(member_id, self.limits), _nobody, is_taken_back=False)
            self.changed()

    def archive(self, first: int, last: int, answer: OnStored) -> None:
        """Archive records that have their dead letters, or can have none."""
        self._submit(self.records.archive(first, last), answer, is_taken_back=True)

    def changed(self) -> None:
        """Wake a request that waits, set the timer for the next lock that ends, and begin with dead letters."""
        self.offer()
        self.set_timer()
        if next(self.records.waiting_for_dead_letters(), None) is not None:
            self._environment.write_dead_letters(self)

    def set_timer(self) -> None:
        """Set the timer for the next lock that ends, unless it is set for an earlier time."""
        wake_ms = self.records.wake_ms
        if wake_ms >= self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        delay_s = max(wake_ms - self.now_ms, 0) / 1000
        self._timer = self._environment.timers.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        if self.records.wake_ms > self.now_ms:
            self.set_timer()
            return
        change = self.records.expire(self.now_ms, self.limits)
        self.counts.lock_timeouts += sum(map(len, change.ranges))
        self._submit(change, _nobody, is_taken_back=False)
        self.changed()

    def _submit(self, change: ShareChange, answer: OnStored, *, is_taken_back: bool) -> None:
        if not change.batches:
            answer(None)
            return
        self._submitted.append(_Submitted(change, answer, is_taken_back))
        self._write_next()

    def _write_next(self) -> None:
        """Store what was decided, unless a write is under way or waits."""
        if self._writing or self._again is not None or not self._submitted or self.life is not Life.ACTIVE:
            return
        self._writing, batches = _disjoint(self._submitted)
        del self._submitted[: len(self._writing)]
        start, count = self.records.window.start, self.records.window.final_count()
        entry = WriteEntry(self.key, self._state_epoch, self.leader_epoch, start, count, batches)
        self._environment.persister.write(self.group_id, [entry], self._on_written)

    def _on_written(self, outcomes: Outcomes) -> None:
        if self.life is not Life.ACTIVE:
            return
        outcome, written = outcomes[self.key], self._writing
        if outcome.error in _FENCED:
            self.fence(_answer_of(outcome))
            return
        self._writing = []
        error = _answer_of(outcome) if outcome.error else None
        for each in written:
            if error is None:
                self.records.commit(each.change)
            elif each.is_taken_back:
                self.records.roll_back(each.change)
        if error is not None:
            self._store_again([each for each in written if not each.is_taken_back], error)
        self._write_next()
        for each in written:
            if error is None or each.is_taken_back:
                each.answer(error)
        self.changed()
        self._environment.on_rest(self)

    def _store_again(self, releases: list[_Submitted], error: ApiError) -> None:
        log.warning(
            "the state of group %s for %s was not stored: %s", self.group_id, self.hosted.topic_partition, error
        )
        if releases:
            self._submitted[:0] = releases
            self._again = self._environment.timers.call_later(STORE_AGAIN_S, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._write_next()


def _nobody(_error: ApiError | None) -> None:
    """OnStored nobody."""


def _answer_of(outcome: ShareOutcome) -> ApiError:
    return ApiError(_ANSWERS.get(outcome.error, ErrorCode.UNKNOWN_SERVER_ERROR), outcome.message or outcome.error.name)


def _disjoint(submitted: Iterable[_Submitted]) -> tuple[list[_Submitted], list[StateBatch]]:
    """Return as many changes, in their order, as have no record in common, and all of their batches, sorted."""
    taken: list[_Submitted] = []
    batches: list[StateBatch] = []
    for each in submitted:
        if any(_meets(batches, batch) for batch in each.change.batches):
            break
        for batch in each.change.batches:
            insort(batches, batch)
        taken.append(each)
    return taken, batches


def _meets(batches: list[StateBatch], batch: StateBatch) -> bool:
    """True if a record of `batch` is in the sorted batches."""
    place = bisect_left(batches, batch)
    after = place < len(batches) and batches[place].first_offset <= batch.last_offset
    return after or (place > 0 and batches[place - 1].last_offset >= batch.first_offset)
