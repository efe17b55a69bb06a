"""What a change of a Topic's status is worth telling as Kubernetes Events. Pure."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.kube_event import Said
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.topic import Topic

PARTITIONS_RAISED: Final = "PartitionsRaised"


def topic_events(topic: Topic, before: Json) -> Iterator[Said]:
    """That it has more partitions; `before` is the status that it had, as JSON."""
    had = before.get("partitions")
    count = topic.status.partitions if topic.status is not None else None
    if count is None or had is None or count <= had:
        return
    declared = topic.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", by somebody else"
    yield "Normal", PARTITIONS_RAISED, f"from {had} to {count} partitions{by_whom}"
