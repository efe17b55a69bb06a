"""Batch the ISRs that leaders propose, and write each batch to the metadata.

An urgent proposal, such as the removal of a replica that holds up the high watermark, is written immediately, one write
at a time. An addition to an ISR that already suffices for acks=all waits `JOINS_TOGETHER_S`, so that a returning broker
causes few writes of each topic. Urgent proposals and additions do not wait for each other.

A partition sees in the metadata image that its proposal was written; `isr_change_refused` is called if the proposal was
refused. If the outcome of a write is unknown, the current ISR is written once more, so that the proposal can no longer
take effect.
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
"""The time in seconds for which additions to ISRs are collected into one write."""
JOINS_MAX: Final = 500
"""The maximum number of partitions for which one write adds replicas to the ISR."""

ChangeIsr = Callable[[Sequence[IsrChange]], Awaitable[Mapping[TopicPartition, PartitionState | ApiError]]]


class IsrProposer(Protocol):
    """A partition that this broker leads, and that proposes changes of its ISR."""

    topic_partition: TopicPartition

    @property
    def isr_size(self) -> int:
        """The number of in-sync replicas."""
        ...

    @property
    def isr_size_min(self) -> int:
        """The number of in-sync replicas that are required for records to be committed."""
        ...

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        """Return the ISR to write to the metadata, or None if no proposal is pending.

        The result is the proposed ISR. With `confirms=True` it is the current ISR, whose write shows whether an earlier
        write of the proposed ISR has succeeded.
        """
        ...

    def isr_change_refused(self, change: IsrChange) -> None:
        """Drop the pending ISR, because it was refused and will not be written to the metadata."""
        ...


class IsrChanges:
    """The queue of proposals, which `change_isr` writes to the metadata."""

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
        """The number of times that the write of an ISR was refused or had an unknown outcome."""

    def propose(self, proposer: IsrProposer) -> None:
        """Queue a proposal, to be written in the next turn of the event loop, or later if it is not urgent."""
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
        """Write the proposed ISRs, or with `confirms=True` the current ISRs once more.

        Return the partitions for which the outcome of the write is unknown.
        """
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
            log.info("the ISR of %s was not changed: %s", topic_partition, outcome)
            proposers[topic_partition].isr_change_refused(changes[topic_partition])
        return unknown


def _may_wait(proposer: IsrProposer) -> bool:
    """True if the proposal adds a replica to an ISR that already suffices for acks=all."""
    change = proposer.isr_change(confirms=False)
    return change is not None and len(change.isr) > proposer.isr_size >= proposer.isr_size_min
