"""The conversion of a KafkaTopic to a Topic."""

from typing import Final

from barnabas_core.topic_name import is_internal
from barnabas_operator.planning.strimzi.configs import topic_config
from barnabas_operator.planning.strimzi.manifest import StrimziResource
from barnabas_operator.planning.strimzi.section import given
from barnabas_operator.resources.json_types import JsonObject

_OF_STRIMZI: Final = ("__strimzi", "strimzi-store-topic", "strimzi-topic-operator")
DELETE: Final = "Delete"
"""The deletion policy that matches Strimzi, which deletes a topic with its resource."""


def converted_topic(topic: StrimziResource) -> JsonObject | None:
    """Return the Topic, or None for an internal topic of brokers or operator."""
    spec = topic.spec
    name = spec.take("topicName", str)
    kafkas_name = name or topic.source.name
    if is_internal(kafkas_name) or kafkas_name.startswith(_OF_STRIMZI):
        spec.skip_rest()
        topic.source.hint(f"is left out: only brokers or the operator create the topic {kafkas_name}")
        return None
    return topic.as_kind(
        "Topic",
        given(
            cluster=topic.named_cluster(),
            topicName=name,
            partitions=spec.take("partitions", int),
            replicas=spec.take("replicas", int),
            config=topic_config(spec),
            deletionPolicy=DELETE,
            pause=topic.is_paused or None,
        ),
    )
