"""The Kubernetes Events for changes to the status of a Topic."""

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
    """Yield an Event if the topic has got more partitions; `before` is the earlier status of the Topic as JSON."""
    had = before.get("partitions")
    count = topic.status.partitions if topic.status is not None else None
    if count is None or had is None or count <= had:
        return
    declared = topic.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", because another client added partitions"
    yield "Normal", PARTITIONS_RAISED, f"the number of partitions rose from {had} to {count}{by_whom}"


def drift_undone(before: Topic, step: TopicStep) -> Said | None:
    """Return an Event if the step undoes config changes of another client, or None if it does not.

    `before` is the Topic before the step. Changes to throttle configs are not reported, because the operator makes
    them itself.
    """
    if not isinstance(step, AlterConfigs) or not was_brought_about(before):
        return None
    changes = {name: value for name, value in step.changes.items() if name not in (LEADERS, FOLLOWERS)}
    if not changes:
        return None
    undone = describe(AlterConfigs(step.topic, changes))
    return (
        "Normal",
        DRIFT_UNDONE,
        f"another client had changed configs of the topic, and the operator has undone the change: {undone}",
    )
