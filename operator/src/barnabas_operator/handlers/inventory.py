"""The resources as the watch last told them, and which Cluster a Topic belongs to."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]


class Key(NamedTuple):
    """Where a resource is."""

    namespace: str
    name: str


class Inventory:
    """Filled by the watch; everything else reads."""

    def __init__(self) -> None:
        self.clusters: Final[dict[Key, Json]] = {}
        self.topics: Final[dict[Key, Json]] = {}

    def cluster_of(self, topic: Json) -> Key | None:
        """The Cluster that a Topic names, though it may not be there; where it names none, the only one there is."""
        namespace = topic["metadata"]["namespace"]
        named = topic.get("spec", {}).get("cluster")
        if named is not None:
            return Key(namespace, named)
        there = [key for key in self.clusters if key.namespace == namespace]
        return there[0] if len(there) == 1 else None

    def topics_of(self, cluster: Key) -> Iterator[Json]:
        """The Topics of a Cluster."""
        return (topic for topic in self.topics.values() if self.cluster_of(topic) == cluster)

    def namesake_of(self, topic: Json) -> str | None:
        """Another Topic of the same topic in the same Cluster."""
        cluster, wanted, name = self.cluster_of(topic), topic_name(topic), topic["metadata"]["name"]
        same = (each for each in self.topics_of(cluster) if topic_name(each) == wanted) if cluster else ()
        return next((found for each in same if (found := each["metadata"]["name"]) != name), None)

    def keep(self, body: Json, *, is_gone: bool) -> None:
        """What the watch tells of a Cluster or a Topic."""
        kept = self.clusters if body["kind"] == "Cluster" else self.topics
        if is_gone:
            kept.pop(key_of(body), None)
        else:
            kept[key_of(body)] = body

    def stray_topics(self) -> Iterator[Json]:
        """Topics without a Cluster: it is not there (any more, or yet), or not named where there are several."""
        return (topic for topic in self.topics.values() if self.cluster_of(topic) not in self.clusters)


def topic_name(body: Json) -> str:
    """The topic that a Topic is about."""
    return str(body.get("spec", {}).get("topicName") or body["metadata"]["name"])


def key_of(body: Json) -> Key:
    """Where this resource is."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
