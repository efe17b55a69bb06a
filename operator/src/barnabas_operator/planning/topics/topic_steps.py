"""The steps that change topics; each step is one request of the Kafka protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from barnabas_operator.planning.cluster_state import ReplicaIds

ROWS_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """The step that creates a topic; `assignments` holds the replicas of each partition."""

    topic: str
    assignments: tuple[ReplicaIds, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IncreasePartitions:
    """The step that adds partitions; `count` is the new total, `assignments` the replicas of the added partitions."""

    topic: str
    count: int
    assignments: tuple[ReplicaIds, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """The step that changes configs of a topic; None resets a config to its default."""

    topic: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class MoveReplicas:
    """The step that starts a reassignment; `assignments` holds the new replicas by partition."""

    topic: str
    assignments: Mapping[int, ReplicaIds]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """The step that deletes a topic by its id, so that a new topic of the same name is kept."""

    topic: str
    topic_id: str


TopicStep = CreateTopic | IncreasePartitions | AlterConfigs | MoveReplicas | DeleteTopic


def describe(step: TopicStep) -> str:
    """Return the step in words, for the log."""
    match step:
        case CreateTopic(topic, assignments, _):
            return f"create {topic} with {len(assignments)} partitions and {len(assignments[0])} replicas of each"
        case IncreasePartitions(topic, count, assignments):
            return f"raise {topic} from {count - len(assignments)} to {count} partitions"
        case AlterConfigs(topic, changes):
            pairs = (
                f"{key}={value}" if value is not None else f"{key} to its default" for key, value in changes.items()
            )
            return f"set configs of {topic}: {', '.join(pairs)}"
        case MoveReplicas(topic, moved):
            rows = (f"{number} to {','.join(map(str, row))}" for number, row in islice(moved.items(), ROWS_SHOWN))
            more = f" and {len(moved) - ROWS_SHOWN} more" if len(moved) > ROWS_SHOWN else ""
            return f"move replicas of {topic}: {'; '.join(rows)}{more}"
        case DeleteTopic(topic, _):
            return f"delete {topic}"
