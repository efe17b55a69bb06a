"""The Kubernetes Events about changes of a Topic's status. Pure."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.configs import FOLLOWERS, LEADERS
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.topics.topic_plan import was_brought_about
from barnabas_operator.planning.topics.topic_steps import AlterConfigs, TopicStep, describe
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.topic import Topic

PARTITIONS_RAISED: Final = "PartitionsRaised"
DRIFT_UNDONE: Final = "DriftUndone"


def topic_events(topic: Topic, before: Json) -> Iterator[Said]:
    """Yield the Event that it has more partitions; `before` is the earlier status as JSON."""
    had = before.get("partitions")
    count = topic.status.partitions if topic.status is not None else None
    if count is None or had is None or count <= had:
        return
    declared = topic.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", by somebody else"
    yield "Normal", PARTITIONS_RAISED, f"from {had} to {count} partitions{by_whom}"


def drift_undone(before: Topic, step: TopicStep) -> Said | None:
    """Return the Event that a step reset configs that others had changed; `before` is the Topic before the step.

    The throttles of moves are the operator's own.
    """
    if not isinstance(step, AlterConfigs) or not was_brought_about(before):
        return None
    changes = {name: value for name, value in step.changes.items() if name not in (LEADERS, FOLLOWERS)}
    if not changes:
        return None
    undone = describe(AlterConfigs(step.topic, changes))
    return "Normal", DRIFT_UNDONE, f"another client had changed its configs: {undone}"
