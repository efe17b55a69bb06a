"""The changes of partitions: each change is decided independently, and the metadata is written by compare-and-set."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules, rules_of
from barnabas_broker.metadata.controller.transitions import Planned, Transitions
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import KnownEnds
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument, TopicPartDocument
from barnabas_broker.metadata.topic_layout import part_with, pieces_of
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import WRITTEN_PARTITIONS, FairTurn, in_turns, next_turn, slices
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


LOOKED_AT_MAX: Final = 100
"""The number of partitions that `would_change` checks before other tasks get a turn."""
FOUND_MAX: Final = 1_000
"""The number of partitions that are grouped by their key in the metadata store before other tasks get a turn.

Grouping so many partitions takes about 2 ms.
"""
NO_TOPIC: Final = "The topic '%s' does not exist."


class Piece(NamedTuple):
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
            if not rules.unclean:
                return rules
            replicas = topic.partitions[number].replicas
            return replace(rules, log_ends=known_ends.of_replicas(topic.topic_id, number, replicas))

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
            rules, states = self.rules(topic), topic.partitions[begin : begin + LOOKED_AT_MAX]
            for number, state in enumerate(states, begin):
                if decide(TopicPartition(name, number), topic, rules(number)) is not state:
                    return True
            begin += LOOKED_AT_MAX
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
