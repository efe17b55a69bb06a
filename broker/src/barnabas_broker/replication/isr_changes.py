"""Carries the leaders' proposals for their in-sync replicas to the metadata: all of one turn in one write.

What comes of a proposal reaches the partition through the metadata image. Only a refusal is told from here; where it is
not known whether a proposal was written, the ISR that is known is written once more: after that nothing older can be.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

from barnabas_broker.metadata.decisions.isr_changes import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_core.clock import Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5

ChangeIsr = Callable[[Sequence[IsrChange]], Awaitable[Mapping[TopicPartition, PartitionState | ApiError]]]


class Proposer(Protocol):
    """A partition that leads."""

    topic_partition: TopicPartition

    def isr_change(self, *, settles: bool) -> IsrChange | None:
        """What it proposes; with `settles` the ISR that it knows. None when it does not lead any more."""
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
        self._proposers: dict[TopicPartition, Proposer] = {}
        self.failed_total = 0
        """Proposals that were refused, or whose outcome is unknown."""

    def propose(self, proposer: Proposer) -> None:
        """Write what the partition wants, at the end of this turn."""
        if not self._proposers:
            self._timers.call_soon(lambda: self._spawn(self._write()))
        self._proposers[proposer.topic_partition] = proposer

    async def _write(self) -> None:
        proposers, self._proposers = self._proposers, {}
        unknown = await self._attempt(proposers, settles=False)
        while unknown:
            await self._sleep(RETRY_S)
            unknown = await self._attempt(unknown, settles=True)

    async def _attempt(
        self, proposers: Mapping[TopicPartition, Proposer], *, settles: bool
    ) -> dict[TopicPartition, Proposer]:
        """One write; those whose outcome is not known."""
        made = {each: proposers[each].isr_change(settles=settles) for each in proposers}
        changes = {each: change for each, change in made.items() if change is not None}
        if not changes:
            return {}
        outcomes = await self._change_isr(list(changes.values()))
        unknown: dict[TopicPartition, Proposer] = {}
        for topic_partition, outcome in outcomes.items():
            if not isinstance(outcome, ApiError):
                continue
            self.failed_total += 1
            if settles or outcome.code is ErrorCode.REQUEST_TIMED_OUT:
                unknown[topic_partition] = proposers[topic_partition]
                continue
            log.info("the ISR of %s stays as it is: %s", topic_partition, outcome)
            proposers[topic_partition].isr_change_refused(changes[topic_partition])
        return unknown
