"""The modern groups of one partition of `__consumer_offsets`, and the effects of the decisions about them.

A decision (`consumer_heartbeat`, for example) changes a group at once, and its records go to the log; the answer
waits until they are committed. If they cannot be written, the partition is loaded again, so the state never stays ahead
of the log.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec

from barnabas_broker.coordinators.modern.consumer_heartbeat import begin_matching, resolve, store_matches
from barnabas_broker.coordinators.modern.group import GroupChange, Matching, ModernGroup
from barnabas_broker.coordinators.modern.records import Kind, ModernRecord
from barnabas_broker.coordinators.modern.targets import (
    Plan,
    Topics,
    World,
    begin_epoch,
    changed_targets,
    on_time,
    restart_timeouts,
    write_target_epoch,
)
from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_broker.coordinators.runtime.turns import Alarms, Job, MalformedRecord, Now, Turns
from barnabas_broker.coordinators.runtime.writer import Encodable, PartitionWriter
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.group_configs import GroupConfig, MemberConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps

_logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
GroupT = TypeVar("GroupT", bound=ModernGroup)
SettingsT = TypeVar("SettingsT", bound=MemberConfig)

WAIT_S_MAX: Final = 3.0
"""The time for which a heartbeat waits for a computation: clients wait 30 s for an answer, and for four of these."""
_TARGETS_AT_ONCE: Final = 50
_STEP_BYTES: Final = 2 * 1024
_PACE_BYTES: Final = 128 * 1024
_RESTORED_AT_ONCE: Final = 100
"""The number of members whose groups are restored before other tasks may run: about a millisecond of work."""


def _paced(steps: InSteps[ResultT]) -> Generator[None, None, ResultT]:
    """Run short steps, as many as take about a millisecond between two yields."""
    spent_bytes = 0
    while True:
        try:
            spent_bytes += next(steps) + _STEP_BYTES
        except StopIteration as end:
            result: ResultT = end.value
            return result
        if spent_bytes >= _PACE_BYTES:
            spent_bytes = 0
            yield


class ModernEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of modern groups."""

    topics: Topics
    settings: Callable[[str], GroupConfig]
    """Return the settings of a consumer group."""
    is_on: Callable[[], bool]
    """Return True if the cluster has consumer groups with this protocol."""


class GroupRules(msgspec.Struct, Generic[GroupT, SettingsT], frozen=True):
    """The functions that consumer groups and share groups have in their own ways."""

    make: Callable[[str], GroupT]
    settings: Callable[[str], SettingsT]
    plan: Callable[[GroupT, World[SettingsT]], InSteps[Plan]]


class ModernGroups(Generic[GroupT, SettingsT]):
    """The modern groups of one kind in one partition; each loading of the partition makes a new collection."""

    def __init__(
        self,
        rules: GroupRules[GroupT, SettingsT],
        topics: Topics,
        clock: Clock,
        timers: Timers,
        turns: Turns,
        writer: PartitionWriter[Any],
        changed: Callable[[GroupT], object],
    ) -> None:
        """Create the collection; `changed` is called after each change of a group, and after it was loaded."""
        self.by_id: dict[str, GroupT] = {}
        self._rules = rules
        self._topics = topics
        self._clock = clock
        self._timers = timers
        self._turns = turns
        self._writer = writer
        self._changed = changed
        self._alarms = Alarms(timers, clock, self._wake)
        self._unanswered: dict[str, list[Callable[[ErrorCode], object]]] = {}
        """The answers that wait for the last write of each group."""
        self._until_computed: dict[str, list[Job]] = {}
        """The heartbeats that wait for an assignment, or for topics of regular expressions, of each group."""

    def apply(self, record: ModernRecord) -> None:
        """Apply a record that was read from the log. A group without an epoch is removed at the end of loading."""
        group = self.by_id.get(record.group_id)
        if group is None:
            group = self.by_id[record.group_id] = self._rules.make(record.group_id)
        group.apply(record)

    def restore(self, left_out: LeftOut) -> Iterator[None]:
        """Remove what lacks a part of its records, in steps between which other tasks may run."""
        groups = iter(list(self.by_id.values()))
        while some := list(islice(groups, _RESTORED_AT_ONCE)):
            for group in some:
                group.forget_unknown()
                if not group.is_stored:
                    del self.by_id[group.group_id]
                    left_out.add(f"group {group.group_id}", MalformedRecord("the group has no record of its epoch"))
            yield

    def serve(self) -> Iterator[None]:
        """Begin the sessions of the members of the loaded groups."""
        for group in list(self.by_id.values()):
            if self.by_id.get(group.group_id) is group:
                restart_timeouts(group, self.world(group.group_id))
                self._alarms.set(group.group_id, group.wake_ms)
                self._changed(group)
                yield

    def close(self) -> None:
        """Cancel all timers, and let heartbeats go on that wait. The writer has answered all other requests."""
        self._alarms.cancel_all()
        for group_id in list(self._until_computed):
            self._computed(group_id)

    def when_computed(self, group: GroupT, callback: Callable[[], object], give_up: Callable[[], object]) -> None:
        """Call `callback` in a later turn of the loop, after the computation for the group that runs now, if any.

        Call `give_up` instead if that takes longer than WAIT_S_MAX.
        """
        is_called = False

        def call(function: Callable[[], object]) -> bool:
            nonlocal is_called
            if not is_called:
                is_called = True
                timer.cancel()
                function()
            return False

        timer = self._timers.call_later(WAIT_S_MAX, partial(call, give_up))
        job = partial(call, callback)
        if group.is_assigning or group.is_matching:
            self._until_computed.setdefault(group.group_id, []).append(job)
        else:
            self._turns.add(job)

    def _computed(self, group_id: str) -> None:
        for job in self._until_computed.pop(group_id, ()):
            self._turns.add(job)

    def set_alarm(self, group: GroupT) -> None:
        """Set the timer of a group after a request that changed only deadlines."""
        self._alarms.set(group.group_id, group.wake_ms)

    def world(self, group_id: str) -> World[SettingsT]:
        """Return the facts on which a decision about a group depends."""
        now = Now(self._clock.now_ms(), int(self._clock.monotonic_s() * 1000))
        return World(now, self._rules.settings(group_id), self._topics)

    def run(
        self,
        group: GroupT,
        decide: Callable[[GroupChange, World[SettingsT]], ResultT],
        answer: Callable[[ErrorCode, ResultT], object],
        first: Sequence[Encodable] = (),
    ) -> None:
        """Change a group, and answer with the result once all of its records so far are committed.

        `first` are records that are written before those of the change. Raises the ApiError of `decide`, which then has
        changed nothing.
        """
        change, world = GroupChange(group), self.world(group.group_id)
        try:
            result = decide(change, world)
        except Exception:
            if change.records:
                self._writer.on_doubt()
            raise
        for note in change.notes:
            _logger.info("group %s: %s", group.group_id, note)
        if group.is_stored:
            self.by_id[group.group_id] = group
        if change.wants_targets and not group.is_assigning:
            group.is_assigning = True
            self._turns.run(self._assign(group, world))
        if change.wanted_matching is not None:
            group.is_matching = True
            self._turns.run(self._match(group, change.wanted_matching, world))
        self._write(group.group_id, (*first, *change.records), lambda error: answer(error, result))
        self._alarms.set(group.group_id, group.wake_ms)
        if change.records:
            self._changed(group)

    def _write(self, group_id: str, records: Sequence[Encodable], answer: Callable[[ErrorCode], object]) -> None:
        """Write records; without any, answer together with the last write of the group."""
        if not records:
            waiting = self._unanswered.get(group_id)
            if waiting is None:
                answer(ErrorCode.NONE)
            else:
                waiting.append(answer)
            return
        answers = self._unanswered[group_id] = [answer]

        def finished(error: ErrorCode) -> None:
            if self._unanswered.get(group_id) is answers:
                del self._unanswered[group_id]
            for each in answers:
                each(error)

        self._writer.submit(group_id, records, finished, is_applied=True)

    def _assign(self, group: GroupT, world: World[SettingsT]) -> Iterator[object]:
        """Compute the target assignment of a large group, and write it, in steps between which others may run.

        It begins in a later turn, so that it is also about other members that join in this one.
        """
        try:
            yield None
            epoch = group.epoch
            plan = yield from _paced(self._rules.plan(group, world))
            targets = yield from _paced(plan.steps)
            changed = changed_targets(group, targets)
            for begin in range(0, len(changed), _TARGETS_AT_ONCE):
                if not self._is_here(group):
                    return
                change = GroupChange(group)
                for member_id, target in changed[begin : begin + _TARGETS_AT_ONCE]:
                    if member_id in group.members:
                        change.write(Kind.TARGET, member_id, target)
                self._write(group.group_id, tuple(change.records), lambda _: None)
                yield _TARGETS_AT_ONCE
            if self._is_here(group):
                change = GroupChange(group)
                write_target_epoch(change, epoch, self.world(group.group_id).now)
                self._write(group.group_id, tuple(change.records), lambda _: None)
        finally:
            group.is_assigning = False
            self._computed(group.group_id)

    def _match(self, group: GroupT, matching: Matching, world: World[SettingsT]) -> Iterator[object]:
        """Match regular expressions with many topics, and store the results, in steps between which others may run."""
        patterns, names, has_changed = tuple(matching.patterns), list(matching.names), False
        begin_matching(group, matching, world)
        try:
            yield None
            for pattern in patterns:
                found = yield from resolve((pattern,), names)
                if not self._is_here(group):
                    return
                change = GroupChange(group)
                has_changed |= store_matches(change, found, world, matching)
                self._write(group.group_id, tuple(change.records), lambda _: None)
            if has_changed:
                self.run(group, lambda change, world: begin_epoch(change, world, is_due=True), lambda *_: None)
        finally:
            group.is_matching = False
            self._computed(group.group_id)

    def _is_here(self, group: GroupT) -> bool:
        return not self._writer.is_closed and self.by_id.get(group.group_id) is group

    def _wake(self, group_id: str) -> None:
        group = self.by_id.get(group_id)
        if group is None:
            return
        try:
            self.run(group, on_time, lambda *_: None)
        except Exception:
            _logger.exception("bug: the members of the group %s that are late could not be fenced", group_id)
