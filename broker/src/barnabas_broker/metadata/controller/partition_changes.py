"""The changes of partitions: each change is decided independently, and the metadata is written by compare-and-set.

The writer of changes to partitions that leaders, other brokers or administrators request. Any broker can write
these changes.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import (
    ElectionType,
    LogAhead,
    Rules,
    decide_election,
    overtake,
    rules_of,
)
from barnabas_broker.metadata.controller.decisions.fencing import (
    IsrChange,
    check_topic,
    decide_isr_change,
    decide_reassignment,
    is_reassigned,
    lose,
    remove_fenced,
    resign,
)
from barnabas_broker.metadata.controller.deletions import Item, Planned, Transitions, each
from barnabas_broker.metadata.documents import broker_key, part_with, pieces_of, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import KnownEnds
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument, TopicPartDocument
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import OUTCOMES, WRITTEN_PARTITIONS, FairTurn, in_turns, next_turn, slices
from barnabas_core.topic_partition import TopicPartition

PartitionOutcome = PartitionState | ApiError

DecidePartition = Callable[[TopicPartition, TopicDocument, Rules], PartitionState]
"""A function that returns the new state of a topic's partition, or the same object if the partition does not change.

The function may raise ApiError.
"""

DecideState = Callable[[PartitionState, Rules], PartitionState]


def for_each(decide: DecideState) -> DecidePartition:
    """Return a DecidePartition that calls `decide` with the partition's current state and the election rules."""
    return lambda which, topic, rules: decide(topic.partitions[which.partition], rules)


CHECKED_MAX: Final = 100
"""The number of partitions that `would_change` checks before other tasks get a turn."""
FOUND_MAX: Final = 1_000
"""The number of partitions that are grouped by their key in the metadata store before other tasks get a turn.

Grouping so many partitions takes about 2 ms.
"""
NO_TOPIC: Final = "The topic '%s' does not exist."


class Piece(msgspec.Struct, frozen=True):
    """Partitions to change that are stored in the same document; a large topic is stored in several documents.

    More than WRITTEN_PARTITIONS of a document, or of a topic that does not exist, are several pieces, changed one after
    the other.
    """

    topic: str
    numbers: Sequence[int]

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as TopicPartitions."""
        return [TopicPartition(self.topic, number) for number in self.numbers]


class PartitionChanges:
    """The writer of changes to the metadata of partitions."""

    def __init__(self, transitions: Transitions, image: MetadataImage, config: Callable[[], BrokerConfig]) -> None:
        self._transitions = transitions
        self._image = image
        self._config = config
        self.elections_total = 0
        """The number of partition leaders that this broker has elected."""

    @property
    def rounds(self) -> int:
        """The number of attempts of this broker so far to decide on metadata changes and to write them."""
        return self._transitions.rounds

    def rules(self, topic: TopicDocument) -> Callable[[int], Rules]:
        """Return a function that takes the number of a partition of `topic`, and returns the current Rules for it."""
        rules, known_ends = rules_of(topic.configs, self._image.brokers, self._config()), KnownEnds(self._image)

        def at(number: int) -> Rules:
            state = topic.partitions[number]
            if not rules.unclean and any(map(rules.is_alive, state.isr)):
                return rules  # The log ends of most partitions need not be decoded.
            replicas = state.replicas
            return msgspec.structs.replace(rules, log_ends=known_ends.of_replicas(topic.topic_id, number, replicas))

        return at

    async def change(
        self, partitions: Iterable[TopicPartition], decide: DecidePartition
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Change partitions, and wait until the metadata image of this broker has the new states.

        Return the new state or the error for each partition.
        """
        answers: dict[TopicPartition, PartitionOutcome] = {}
        pieces = await self._pieces(partitions)
        for piece, failure in (await self._carry_out(pieces, decide, answers)).items():
            answers |= {each: failure for each in piece.partitions() if not isinstance(answers.get(each), ApiError)}
        return answers

    async def change_topics(self, names: Sequence[str], decide: DecidePartition) -> dict[str, ApiError]:
        """Apply `decide` to all partitions of topics, and skip unknown topics; return the errors by topic.

        `decide` must not raise ApiError here.
        """
        topics = (self._image.topics.get(name) for name in names)
        pieces = [
            Piece(topic.name, tuple(numbers)) for topic in topics if topic is not None for numbers in pieces_of(topic)
        ]
        return {piece.topic: failure for piece, failure in (await self._carry_out(pieces, decide, {})).items()}

    async def would_change(self, name: str, decide: DecidePartition, turn: FairTurn) -> bool:
        """True if `change_topics` would change this topic now."""
        begin = 0
        while (topic := self._image.topics.get(name)) is not None and begin < len(topic.partitions):
            rules, states = self.rules(topic), topic.partitions[begin : begin + CHECKED_MAX]
            for number, state in enumerate(states, begin):
                if decide(TopicPartition(name, number), topic, rules(number)) is not state:
                    return True
            begin += CHECKED_MAX
            await turn.give_way()
        return False

    async def _pieces(self, partitions: Iterable[TopicPartition]) -> list[Piece]:
        """Group partitions by the stored document that contains them, because a document is written as a whole."""
        found: dict[tuple[str, int], dict[int, None]] = {}  # A request may have a partition twice.
        begins: dict[str, list[int]] = {}
        for count, (name, number) in enumerate(partitions, 1):
            if name not in begins:
                topic = self._image.topics.get(name)
                begins[name] = [0] if topic is None else [each.start for each in pieces_of(topic)]
            found.setdefault((name, bisect_right(begins[name], number)), {})[number] = None
            if count % FOUND_MAX == 0:
                await next_turn()
        return [
            Piece(name, tuple(some))
            async for (name, _), numbers in in_turns(found.items(), FOUND_MAX)
            for some in slices(list(numbers), lambda _: 1, WRITTEN_PARTITIONS, WRITTEN_PARTITIONS)
        ]

    def _decide(self, piece: Piece, decide: DecidePartition) -> dict[TopicPartition, PartitionOutcome]:
        partitions = piece.partitions()
        topic = self._image.topics.get(piece.topic)
        if topic is None:
            return dict.fromkeys(partitions, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC % piece.topic))
        rules = self.rules(topic)
        return {each: _decide_one(each, topic, rules, decide) for each in partitions}

    async def _carry_out(
        self, pieces: Sequence[Piece], decide: DecidePartition, answers: dict[TopicPartition, PartitionOutcome]
    ) -> dict[Piece, ApiError]:
        """Decide and write the changes of pieces; return the pieces that were not written, with the error of each.

        The last decision on each partition is put into `answers`.
        """
        elections: dict[Piece, int] = {}

        def decide_all(wanted: Sequence[Piece]) -> dict[Piece, Planned | ApiError]:
            planned: dict[Piece, Planned | ApiError] = {}
            for piece in wanted:
                decided = self._decide(piece, decide)
                answers.update(decided)
                topic = self._image.topics.get(piece.topic)
                new = {} if topic is None else _changed_states(topic, decided)
                if topic is not None and new:
                    elections[piece] = _elected(topic, new)
                    planned[piece] = _with_states(topic, new, self._image)
            return planned

        outcomes = await self._transitions.carry_out(pieces, decide_all, lambda piece: len(piece.numbers))
        failures = {piece: outcome for piece, outcome in outcomes.items() if isinstance(outcome, ApiError)}
        self.elections_total += sum(elections[piece] for piece in outcomes.keys() - failures.keys())
        return failures


def _changed_states(
    topic: TopicDocument, decided: Mapping[TopicPartition, PartitionOutcome]
) -> dict[int, PartitionState]:
    return {
        number: state
        for (_, number), state in decided.items()
        if isinstance(state, PartitionState) and state is not topic.partitions[number]
    }


def _with_states(topic: TopicDocument, states: Mapping[int, PartitionState], image: MetadataImage) -> Planned:
    key = part_with(topic, states, image.stored)
    part = None if key is None else image.stored(key)
    if key is None or not isinstance(part, TopicPartDocument):
        all_states = tuple(states.get(number, state) for number, state in enumerate(topic.partitions))
        return Planned(topic_key(topic.name), msgspec.structs.replace(topic, partitions=all_states))
    numbers = range(part.first, part.first + len(part.partitions))
    mine = tuple(states.get(number, topic.partitions[number]) for number in numbers)
    return Planned(key, msgspec.structs.replace(part, partitions=mine))


def _elected(topic: TopicDocument, states: Mapping[int, PartitionState]) -> int:
    """Return the number of partitions for which the new states elect a leader."""
    epochs = {number: topic.partitions[number].leader_epoch for number in states}
    return sum(now.leader_epoch > epochs[number] and now.leader != NO_LEADER for number, now in states.items())


def _decide_one(
    topic_partition: TopicPartition,
    topic: TopicDocument,
    rules: Callable[[int], Rules],
    decide: DecidePartition,
) -> PartitionOutcome:
    if not 0 <= topic_partition.partition < len(topic.partitions):
        message = (
            f"Topic {topic.name} has no partition {topic_partition.partition}; "
            f"the topic has {len(topic.partitions)} partition(s)."
        )
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    try:
        return decide(topic_partition, topic, rules(topic_partition.partition))
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.


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
            return overtake(state, ahead[which], msgspec.structs.replace(rules, log_ends=ends))

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
                rules = msgspec.structs.replace(rules, log_ends=ends)
            return decide_election(state, election, rules)

        wanted = self._all_partitions() if partitions is None else partitions
        outcomes = await self.partitions.change(wanted, decide)
        if election is ElectionType.UNCLEAN:
            _log_accepted(outcomes)
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


def _log_accepted(outcomes: Mapping[TopicPartition, PartitionState | ApiError]) -> None:
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
