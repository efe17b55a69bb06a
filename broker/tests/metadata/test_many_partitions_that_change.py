"""Requests to change very many partitions are handled over several turns of the loop."""

from typing import Any

from image_samples import a_topic, changes

from barnabas_broker.metadata.controller.decisions.elections import Rules
from barnabas_broker.metadata.controller.deletions import Transitions
from barnabas_broker.metadata.controller.partition_changes import PartitionChanges
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

MANY = 4_000
NO_STORE: Any = None
"""No store is necessary, because every change is refused."""


class Topics(dict[str, TopicDocument]):
    """Topics that count their look-ups."""

    asked = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(name, default)


def refuse(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
    raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "it has a leader")


def changed(image: MetadataImage, partitions: list[TopicPartition]) -> tuple[dict[TopicPartition, Any], list[int]]:
    """Return the outcomes, and the count of look-ups at the end of each turn."""
    config = parse_broker_config({"node.id": "0", "log.dirs": "/logs"})
    change: Any = PartitionChanges(Transitions(NO_STORE, image), image, lambda: config).change(partitions, refuse)
    looked_at: list[int] = []
    topics = image.topics = Topics(image.topics)
    while True:
        try:
            change.send(None)
        except StopIteration as end:
            return end.value, [*looked_at, topics.asked]
        looked_at.append(topics.asked)


def test_the_documents_of_very_many_partitions_are_found_over_several_turns() -> None:
    partitions = [TopicPartition(f"t-{number}", 0) for number in range(MANY)]
    outcomes, looked_at = changed(MetadataImage(), partitions)
    assert list(outcomes) == partitions
    turns = [after - before for before, after in zip([0, *looked_at], looked_at, strict=False)]
    assert max(turns) < MANY / 2


def test_a_refusal_has_no_traceback() -> None:
    """The garbage collector would have to traverse thousands of frames."""
    image = MetadataImage()
    image.apply_changes(changes((topic_key("t"), a_topic("t", 1))))
    outcomes, _ = changed(image, [TopicPartition("t", 0)])
    (refusal,) = outcomes.values()
    assert refusal.code is ErrorCode.ELECTION_NOT_NEEDED
    assert refusal.__traceback__ is None
