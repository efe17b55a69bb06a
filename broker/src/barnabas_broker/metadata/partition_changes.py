"""Changes of single partitions: decided one by one, written a topic at a time, by compare-and-set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from barnabas_broker.metadata.decisions.terms import Terms, terms_of
from barnabas_broker.metadata.documents import AnyDocument, topic_key
from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.log_ends import KnownEnds
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.metadata.transitions import Planned, Transitions
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

Outcome = PartitionState | ApiError

DecidePartition = Callable[[TopicPartition, TopicDocument, Terms], PartitionState]
"""The next state of a partition of a topic; the state that it has where nothing is to change. Raises ApiError."""

DecideState = Callable[[PartitionState, Terms], PartitionState]


def for_each(decide: DecideState) -> DecidePartition:
    """A decision that looks at nothing but the state."""
    return lambda which, topic, terms: decide(topic.partitions[which.partition], terms)


NO_TOPIC: Final = "The topic '%s' does not exist."


class PartitionChanges:
    """What the controller's duties and everybody's requests change partitions with."""

    def __init__(self, transitions: Transitions, image: MetadataImage, config: Callable[[], BrokerConfig]) -> None:
        self._transitions = transitions
        self._image = image
        self._config = config
        self.elections_total = 0
        """Leaders that were elected from here."""

    @property
    def rounds(self) -> int:
        """Of writing: `Transitions.rounds`."""
        return self._transitions.rounds

    def terms(self, topic: TopicDocument) -> Callable[[int], Terms]:
        """What decisions on each partition of `topic` go by at this moment."""
        terms, known_ends = terms_of(topic.configs, self._image.brokers, self._config()), KnownEnds(self._image)

        def at(number: int) -> Terms:
            if not terms.unclean:
                return terms
            replicas = topic.partitions[number].replicas
            return replace(terms, log_ends=known_ends.of_replicas(topic.topic_id, number, replicas))

        return at

    async def change(
        self, partitions: Iterable[TopicPartition], decide: DecidePartition
    ) -> dict[TopicPartition, Outcome]:
        """What each of the partitions has become, or why not, once the image holds it."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for topic_partition in dict.fromkeys(partitions):
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition)
        answers: dict[TopicPartition, Outcome] = {}

        def decide_topic(name: str) -> Planned | None:
            decided = self._decide(by_topic[name], decide)
            answers.update(decided)
            states = {number: state for (_, number), state in decided.items() if isinstance(state, PartitionState)}
            return self._planned(name, states)

        failures = await self._carry_out(list(by_topic), decide_topic)
        for name, failure in failures.items():
            answers |= {each: failure for each in by_topic[name] if not isinstance(answers.get(each), ApiError)}
        return answers

    async def change_topics(self, names: Sequence[str], decide: DecidePartition) -> dict[str, ApiError]:
        """Decides on every partition of each topic that is there; the topics for which that could not be written."""

        return await self._carry_out(names, lambda name: self._plan_topic(name, decide))

    def would_change(self, name: str, decide: DecidePartition) -> bool:
        """Whether `change_topics` would write this topic, as it is now."""
        return self._plan_topic(name, decide) is not None

    def _plan_topic(self, name: str, decide: DecidePartition) -> Planned | None:
        topic = self._image.topics.get(name)
        if topic is None:
            return None
        terms, numbers = self.terms(topic), range(len(topic.partitions))
        return self._planned(name, {n: decide(TopicPartition(name, n), topic, terms(n)) for n in numbers})

    def _decide(self, partitions: Sequence[TopicPartition], decide: DecidePartition) -> dict[TopicPartition, Outcome]:
        """On partitions of one topic."""
        name = partitions[0].topic
        topic = self._image.topics.get(name)
        if topic is None:
            return dict.fromkeys(partitions, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC % name))
        terms = self.terms(topic)
        return {each: _decide_one(each, topic, terms, decide) for each in partitions}

    def _planned(self, name: str, states: Mapping[int, PartitionState]) -> Planned | None:
        """The topic with these states, where one of them is new."""
        topic = self._image.topics.get(name)
        if topic is None or all(topic.partitions[number] is state for number, state in states.items()):
            return None
        partitions = tuple(states.get(number, state) for number, state in enumerate(topic.partitions))
        return Planned(topic_key(name), msgspec.structs.replace(topic, partitions=partitions))

    async def _carry_out(self, names: Sequence[str], decide: Callable[[str], Planned | None]) -> dict[str, ApiError]:
        elections: dict[str, int] = {}

        def decide_all(wanted: Sequence[str]) -> dict[str, Planned | ApiError]:
            decided: dict[str, Planned | ApiError] = {}
            for name in wanted:
                planned = decide(name)
                if planned is not None:
                    decided[name] = planned
                    elections[name] = _elections(self._image.topics[name], planned.document)
            return decided

        outcomes = await self._transitions.carry_out(names, decide_all)
        failures = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, ApiError)}
        self.elections_total += sum(elections[name] for name in outcomes.keys() - failures.keys())
        return failures


def _elections(before: TopicDocument, after: AnyDocument | None) -> int:
    """How many partitions got a leader."""
    assert isinstance(after, TopicDocument), "partitions are changed with their topic"
    return sum(
        now.leader_epoch > was.leader_epoch and now.leader != NO_LEADER
        for was, now in zip(before.partitions, after.partitions, strict=True)
    )


def _decide_one(
    topic_partition: TopicPartition, topic: TopicDocument, terms: Callable[[int], Terms], decide: DecidePartition
) -> Outcome:
    if not 0 <= topic_partition.partition < len(topic.partitions):
        message = f"Topic {topic.name} has no partition {topic_partition.partition}, but {len(topic.partitions)}."
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    try:
        return decide(topic_partition, topic, terms(topic_partition.partition))
    except ApiError as error:
        return error
