"""Carries the leaders' proposals for their in-sync replicas to the metadata, many in one write.

One write is under way at a time, and what is proposed meanwhile goes with the next. A replica that joins where enough
are in sync holds nobody up: it waits a moment for others, so that a broker that is back costs few writes a topic. Those
writes are beside the others: a replica that has to leave, and holds up the high watermark, does not wait for them.

What comes of a proposal reaches the partition through the metadata image. Only a refusal is reported from here; where
it is not known whether a proposal was written, the ISR that is known is written once more: after that nothing older can
be.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

from barnabas_broker.metadata.controller.decisions.isr_changes import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_core.clock import Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
JOINS_TOGETHER_S: Final = 0.3
"""A broker that is back catches up with all idle partitions of a leader within a few of its fetches."""
JOINS_MAX: Final = 500
"""In one write. Those of one document go together."""

ChangeIsr = Callable[[Sequence[IsrChange]], Awaitable[Mapping[TopicPartition, PartitionState | ApiError]]]


class IsrProposer(Protocol):
    """A partition that this broker leads, and that proposes changes of its ISR."""

    topic_partition: TopicPartition

    @property
    def isr_size(self) -> int:
        """Replicas that are in sync."""
        ...

    @property
    def isr_size_min(self) -> int:
        """With fewer nothing is committed."""
        ...

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        """What it proposes; with `confirms` the ISR that it knows. None when it does not lead any more."""
        ...

    def isr_change_refused(self, change: IsrChange) -> None:
        """Nothing of `change` was written."""
        ...


class IsrChanges:
    """`change_isr` is the controller's; `spawn` runs a coroutine beside everything else."""

    def __init__(
        self,
        change_isr: ChangeIsr,
        timers: Timers,
        sleep: Callable[[float], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._change_isr = change_isr
        self._timers = timers
        self._sleep = sleep
        self._spawn = spawn
        self._urgent: dict[TopicPartition, IsrProposer] = {}
        self._joining: dict[TopicPartition, IsrProposer] = {}
        self._writes_urgent = False
        self._writes_joins = False
        self._waits_for_joins = False
        self.failed_total = 0
        """Proposals that were refused, or whose outcome is unknown."""

    def propose(self, proposer: IsrProposer) -> None:
        """Write what the partition wants: at the end of this turn, or soon where nobody waits for it."""
        which = proposer.topic_partition
        if _may_wait(proposer) and which not in self._urgent:
            self._joining[which] = proposer
            if not self._waits_for_joins:
                self._waits_for_joins = True
                self._timers.call_later(JOINS_TOGETHER_S, self._joins_are_due)
            return
        self._joining.pop(which, None)
        if not self._urgent:
            self._timers.call_soon(self._begin)
        self._urgent[which] = proposer

    def _joins_are_due(self) -> None:
        self._waits_for_joins = False
        self._begin()

    def _begin(self) -> None:
        if self._urgent and not self._writes_urgent:
            self._writes_urgent = True
            self._spawn(self._write_urgent())
        if self._joining and not self._waits_for_joins and not self._writes_joins:
            self._writes_joins = True
            self._spawn(self._write_joins())

    async def _write_urgent(self) -> None:
        try:
            while self._urgent:
                taken, self._urgent = self._urgent, {}
                await self._write(taken)
        finally:
            self._writes_urgent = False

    async def _write_joins(self) -> None:
        try:
            while self._joining and not self._waits_for_joins:
                await self._write({each: self._joining.pop(each) for each in sorted(self._joining)[:JOINS_MAX]})
        finally:
            self._writes_joins = False

    async def _write(self, taken: Mapping[TopicPartition, IsrProposer]) -> None:
        unknown = await self._attempt(taken, confirms=False)
        if unknown:
            self._spawn(self._confirm(unknown))

    async def _confirm(self, unknown: Mapping[TopicPartition, IsrProposer]) -> None:
        while unknown:
            await self._sleep(RETRY_S)
            unknown = await self._attempt(unknown, confirms=True)

    async def _attempt(
        self, proposers: Mapping[TopicPartition, IsrProposer], *, confirms: bool
    ) -> dict[TopicPartition, IsrProposer]:
        """One write; those whose outcome is not known."""
        made = {each: proposers[each].isr_change(confirms=confirms) for each in proposers}
        changes = {each: change for each, change in made.items() if change is not None}
        if not changes:
            return {}
        outcomes = await self._change_isr(list(changes.values()))
        unknown: dict[TopicPartition, IsrProposer] = {}
        for topic_partition, outcome in outcomes.items():
            if not isinstance(outcome, ApiError):
                continue
            self.failed_total += 1
            if confirms or outcome.code is ErrorCode.REQUEST_TIMED_OUT:
                unknown[topic_partition] = proposers[topic_partition]
                continue
            log.info("the ISR of %s stays as it is: %s", topic_partition, outcome)
            proposers[topic_partition].isr_change_refused(changes[topic_partition])
        return unknown


def _may_wait(proposer: IsrProposer) -> bool:
    """Whether nobody is held up by what it proposes: a replica joins an ISR that suffices."""
    change = proposer.isr_change(confirms=False)
    return change is not None and len(change.isr) > proposer.isr_size >= proposer.isr_size_min
