"""Known mistakes of share groups, each put in by a patch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from barnabas_broker.coordinators.share_delivery import reading, share_partition
from barnabas_broker.coordinators.share_delivery.dead_letters import DeadLetter, _Writing
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition
from barnabas_broker.coordinators.share_delivery.share_partition import Limits, ShareChange, SharePartition
from barnabas_broker.coordinators.share_delivery.window import FINAL, Range, RecordState
from barnabas_broker.coordinators.share_state import shard
from barnabas_broker.coordinators.share_state.shard import StateDecision
from barnabas_broker.coordinators.share_state.share_state import ShareState
from barnabas_core.errors import ApiError
from simulation.set_ups import deposes_leaders_that_learn_it_late, initializes_share_states_again


@contextmanager
def ends_locks_too_early() -> Iterator[None]:
    """A lock lasts for a tenth of its time."""
    acquire: Callable[..., Any] = SharePartition.acquire

    def mistaken(self: SharePartition, *arguments: Any) -> Any:
        *others, limits = arguments
        return acquire(self, *others, limits._replace(lock_ms=limits.lock_ms // 10))

    with patch.object(SharePartition, "acquire", mistaken):
        yield


@contextmanager
def takes_acknowledgements_of_strangers() -> Iterator[None]:
    """A member may acknowledge what another member has acquired."""
    find = SharePartition._find

    def mistaken(self: SharePartition, member_id: str, first: int, last: int, kind: int, pieces: Any) -> None:
        holders = {each.member_id for each in self.window.overlapping(first, last)}
        find(self, holders.pop() if len(holders) == 1 else member_id, first, last, kind, pieces)

    with patch.object(SharePartition, "_find", mistaken):
        yield


@contextmanager
def answers_before_the_state_is_stored() -> Iterator[None]:
    """An acknowledgement is answered at once."""
    submit = LedPartition._submit

    def mistaken(self: LedPartition, change: ShareChange, answer: Any, *, is_taken_back: bool) -> None:
        answer(None)
        submit(self, change, lambda _: None, is_taken_back=is_taken_back)

    with patch.object(LedPartition, "_submit", mistaken):
        yield


@contextmanager
def stores_no_delivery_counts() -> Iterator[None]:
    """The next leader counts deliveries from the beginning."""
    change = share_partition._change

    def mistaken(ranges: Sequence[Range]) -> ShareChange:
        made = change(ranges)
        return msgspec.structs.replace(made, batches=[each._replace(delivery_count=0) for each in made.batches])

    with patch.object(share_partition, "_change", mistaken):
        yield


@contextmanager
def moves_the_start_past_locked_records() -> Iterator[None]:
    """A record that a member has acquired does not hold the window."""
    passed = FINAL | {RecordState.ACQUIRED}
    mistaken = property(lambda self: self.target is None and self.state in passed)
    with patch.object(Range, "is_settled", mistaken):
        yield


@contextmanager
def gives_dead_letters_up() -> Iterator[None]:
    """A record is archived after one try to write its dead letter."""
    write = _Writing._write

    async def mistaken(self: _Writing, letters: list[DeadLetter]) -> None:
        try:
            await write(self, letters)
        except ApiError:
            return

    with patch.object(_Writing, "_write", mistaken):
        yield


@contextmanager
def looks_for_no_dead_letters() -> Iterator[None]:
    """A new leader writes dead letters that are there."""

    async def mistaken(_: _Writing, __: object, letters: list[DeadLetter]) -> list[DeadLetter]:
        return letters

    with patch.object(_Writing, "_not_there", mistaken):
        yield


@contextmanager
def takes_the_state_of_deposed_leaders() -> Iterator[None]:
    """A leader whose successor has read the state may still write."""
    with deposes_leaders_that_learn_it_late(), patch.object(shard, "_fenced_leader", lambda *_: None):
        yield


@contextmanager
def initializes_a_state_twice() -> Iterator[None]:
    """A second request for the same epoch forgets what was acknowledged, as in Apache Kafka."""
    initialize = shard.initialize

    def mistaken(key: Any, found: ShareState | None, entry: Any, around: Any) -> StateDecision:
        if found is not None and found.state_epoch == entry.state_epoch:
            found = found._replace(state_epoch=entry.state_epoch - 1)
        return initialize(key, found, entry, around)

    with initializes_share_states_again(), patch.object(shard, "initialize", mistaken):
        yield


@contextmanager
def delivers_aborted_records() -> Iterator[None]:
    """A group that wants committed records only gets those of aborted transactions, too."""
    with patch.object(reading, "aborted_among", lambda *_: []):
        yield


@contextmanager
def never_ends_locks() -> Iterator[None]:
    """What a member forgets to acknowledge stays locked."""

    def mistaken(self: SharePartition, _now_ms: int, _limits: Limits) -> ShareChange:
        self.wake_ms = share_partition.NEVER_MS
        return ShareChange((), ())

    with patch.object(SharePartition, "expire", mistaken):
        yield


@contextmanager
def keeps_records_that_were_deleted() -> Iterator[None]:
    """Records below the start of the log hold the window."""
    with patch.object(SharePartition, "move_start", lambda *_: False):
        yield


@contextmanager
def keeps_gaps_in_the_window() -> Iterator[None]:
    """Offsets without a record, and markers, never become final."""
    skip = SharePartition._skip

    def mistaken(self: SharePartition, first: int, last: int, now_ms: int, limits: Limits) -> None:
        if self.window.end < first:
            skip(self, first, last, now_ms, limits)

    with patch.object(SharePartition, "_skip", mistaken):
        yield


STUCK: Final = r"^stuck: "
SHARE_MUTANTS: Final[Mapping[Callable[[], AbstractContextManager[None]], str]] = {
    ends_locks_too_early: r"^locked: ",
    takes_acknowledgements_of_strangers: r"^(unfinished|letters|start): ",
    answers_before_the_state_is_stored: r"^(final|counts): ",
    stores_no_delivery_counts: r"^(counts|letters): ",
    moves_the_start_past_locked_records: r"^(start|unfinished): ",
    gives_dead_letters_up: r"^(start|unfinished): ",
    looks_for_no_dead_letters: r"^doubled: ",
    takes_the_state_of_deposed_leaders: r"^(final|counts|unfinished): ",
    initializes_a_state_twice: r"^(final|counts): ",
    delivers_aborted_records: r"^aborted: ",
    never_ends_locks: STUCK,
    keeps_records_that_were_deleted: STUCK,
    keeps_gaps_in_the_window: STUCK,
}
"""The regular expression of the violation that shows each mistake."""

SHARE_SEEDS: Final[Mapping[str, int]] = {
    "answers-before-the-state-is-stored": 2,
    "delivers-aborted-records": 1,
    "gives-dead-letters-up": 1,
    "looks-for-no-dead-letters": 4,
    "never-ends-locks": 1,
    "takes-acknowledgements-of-strangers": 5,
    "takes-the-state-of-deposed-leaders": 3,
}
"""The seeds from which the search begins, if not 0."""
