"""The writer of changes to partitions that leaders, other brokers or administrators request.

Any broker can write these changes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import ElectionType, decide_election
from barnabas_broker.metadata.controller.decisions.fencing import lose, remove_fenced, resign
from barnabas_broker.metadata.controller.decisions.isr_changes import IsrChange, check_topic, decide_isr_change
from barnabas_broker.metadata.controller.decisions.overtaken import LogAhead, overtake
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.controller.decisions.reassignments import decide_reassignment, is_reassigned
from barnabas_broker.metadata.controller.partition_changes import PartitionChanges, for_each
from barnabas_broker.metadata.controller.transitions import Item, Planned, Transitions, each
from barnabas_broker.metadata.documents import broker_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import KnownEnds
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import OUTCOMES, in_turns
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class PartitionStateWriter:
    """The part of `MetadataWriter` that changes partitions."""

    def __init__(
        self, broker_id: int, image: MetadataImage, transitions: Transitions, config: Callable[[], BrokerConfig]
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._transitions = transitions
        self.partitions = PartitionChanges(transitions, image, config)

    async def change_isr(self, changes: Sequence[IsrChange]) -> dict[TopicPartition, PartitionState | ApiError]:
        """Write the ISRs that leaders propose; return the new state of each partition, or the error.

        After REQUEST_TIMED_OUT the ISR may have been written; after any other error the ISR is unchanged.
        """
        proposed = {change.topic_partition: change for change in changes}

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            check_topic(topic, proposed[which])
            return decide_isr_change(topic.partitions[which.partition], proposed[which], rules)

        return await self.partitions.change(proposed, decide)

    async def resign(self, failed_epochs: Mapping[TopicPartition, int]) -> None:
        """Remove this broker as leader, from the ISR and from the ELR of partitions whose logs failed here."""

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            return resign(topic.partitions[which.partition], self._broker_id, failed_epochs[which], rules)

        what = f"could not be changed after the log on broker {self._broker_id} failed"
        _log_failures(await self.partitions.change(failed_epochs, decide), what)

    async def lose(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Record that this broker's logs of these partitions lack records.

        A partition stays unchanged if its leader epoch is no longer that in `leader_epochs`.
        """

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            state = topic.partitions[which.partition]
            return state if state.leader_epoch != leader_epochs[which] else lose(state, self._broker_id, rules)

        what = f"could not be changed after the log on broker {self._broker_id} lost records"
        _log_failures(await self.partitions.change(leader_epochs, decide), what)

    async def overtake(self, ahead: Mapping[TopicPartition, LogAhead]) -> None:
        """Elect leaders for partitions in which this broker's log has a later leader epoch than the metadata."""
        known_ends = KnownEnds(self._image)

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            state = topic.partitions[which.partition]
            ends = known_ends.of_incarnations(topic.topic_id, which.partition, state.replicas)
            return overtake(state, ahead[which], replace(rules, log_ends=ends))

        what = "has an older leader epoch than the log, and could not be changed"
        _log_failures(await self.partitions.change(ahead, decide), what)

    async def hand_over(self, broker_id: int) -> list[TopicPartition]:
        """Mark a broker as shutting down, elect other leaders for its partitions, and remove the broker from ISRs.

        Returns the partitions that no other broker can lead. Raises ApiError if the metadata cannot be changed.
        """
        await self._begin_shutdown(broker_id)
        topics = [topic for topic in self._image.topics.values() if _in_sync(topic, broker_id)]
        failures = await self.partitions.change_topics([topic.name for topic in topics], for_each(remove_fenced))
        if failures:
            raise next(iter(failures.values()))
        return [
            TopicPartition(topic.name, number)
            for topic in self._image.topics.values()
            for number in _in_sync(topic, broker_id)
        ]

    async def _begin_shutdown(self, broker_id: int) -> None:
        def decide(broker: int) -> Planned:
            found = self._image.brokers.get(broker)
            if found is None:
                raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker has the id {broker}.")
            return Planned(broker_key(broker), msgspec.structs.replace(found, is_shutting_down=True))

        outcome = (await self._transitions.carry_out([broker_id], each(decide)))[broker_id]
        if isinstance(outcome, ApiError):
            raise outcome

    async def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ApiError | None]:
        """Elect leaders; return for each partition None, or the error that prevented the election.

        If `partitions` is None, all partitions are tried, and the result leaves out the partitions that need no
        election.
        """
        known_ends = KnownEnds(self._image)

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            state = topic.partitions[which.partition]
            if election is ElectionType.UNCLEAN:
                ends = known_ends.of_replicas(topic.topic_id, which.partition, state.replicas)
                rules = replace(rules, log_ends=ends)
            return decide_election(state, election, rules)

        wanted = self._all_partitions() if partitions is None else partitions
        outcomes = await self.partitions.change(wanted, decide)
        if election is ElectionType.UNCLEAN:
            _say_accepted(outcomes)
        failures = await failures_of(outcomes)
        if partitions is not None:
            return failures
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        return {
            which: error
            async for which, error in in_turns(failures.items(), OUTCOMES)
            if error is None or error.code is not not_needed
        }

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ApiError | None]:
        """Start a reassignment of each partition, or cancel the current reassignment if the targets are None.

        Return the error of each partition, or None for a partition without an error.
        """

        def decide(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            state = topic.partitions[which.partition]
            return decide_reassignment(state, wanted[which], rules, may_change_factor=may_change_factor)

        return await failures_of(await self.partitions.change(wanted, decide))

    def reassignment(self, name: str, number: int) -> PartitionState | None:
        """Return the partition's state if the partition is being reassigned, else None."""
        topic = self._image.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        state = topic.partitions[number]
        return state if is_reassigned(state) else None

    def _all_partitions(self) -> list[TopicPartition]:
        topics = self._image.topics.values()
        return [TopicPartition(topic.name, number) for topic in topics for number in range(len(topic.partitions))]


def _log_failures(outcomes: Mapping[TopicPartition, PartitionState | ApiError], what: str) -> None:
    for which, outcome in outcomes.items():
        if isinstance(outcome, ApiError):
            log.warning("the metadata of %s %s: %s", which, what, outcome)


def _say_accepted(outcomes: Mapping[TopicPartition, PartitionState | ApiError]) -> None:
    for which, outcome in outcomes.items():
        if isinstance(outcome, PartitionState):
            log.warning(
                "%s: an administrator accepted the loss; broker %d leads, and records that are not in its log are lost",
                which,
                outcome.leader,
            )


def _in_sync(topic: TopicDocument, broker_id: int) -> list[int]:
    return [number for number, state in enumerate(topic.partitions) if broker_id in state.isr]


async def failures_of(outcomes: Mapping[Item, object]) -> dict[Item, ApiError | None]:
    """Return for each key of `outcomes` the error, or None if the outcome is not an error."""
    return {
        item: outcome if isinstance(outcome, ApiError) else None
        async for item, outcome in in_turns(outcomes.items(), OUTCOMES)
    }
