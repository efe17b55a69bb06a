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
        self._by_topic: Final[dict[Key, dict[str, Json]]] = {}
        """By namespace and topic, the Topics about it by name: thousands are asked about one by one."""

    def cluster_of(self, topic: Json) -> Key | None:
        """The Cluster that a Topic names, though it may not be there; where it names none, the one that has its topic.

        Only where none has it yet it is the only Cluster there is: a second one takes no topic away from the first.
        """
        namespace = topic["metadata"]["namespace"]
        named = topic.get("spec", {}).get("cluster") or topic.get("status", {}).get("cluster")
        if named is not None:
            return Key(namespace, named)
        there = [key for key in self.clusters if key.namespace == namespace]
        return there[0] if len(there) == 1 else None

    def topics_of(self, cluster: Key) -> Iterator[Json]:
        """The Topics of a Cluster."""
        return (topic for topic in self.topics.values() if self.cluster_of(topic) == cluster)

    def namesake_of(self, topic: Json) -> str | None:
        """Another Topic of the same topic in the same Cluster."""
        cluster, name = self.cluster_of(topic), topic["metadata"]["name"]
        there = self._by_topic.get(_subject(topic), {}) if cluster else {}
        return next((each for each, body in there.items() if each != name and self.cluster_of(body) == cluster), None)

    def keep(self, body: Json, *, is_gone: bool) -> None:
        """What the watch tells of a Cluster or a Topic."""
        key, kept = key_of(body), self.clusters if body["kind"] == "Cluster" else self.topics
        before = kept.pop(key, None)
        if before is not None and kept is self.topics:
            self._forget_subject(before)
        if not is_gone:
            kept[key] = body
            if kept is self.topics:
                self._by_topic.setdefault(_subject(body), {})[key.name] = body

    def _forget_subject(self, topic: Json) -> None:
        subject = _subject(topic)
        about = self._by_topic[subject]
        del about[topic["metadata"]["name"]]
        if not about:
            del self._by_topic[subject]

    def stray_topics(self) -> Iterator[Json]:
        """Topics without a Cluster: it is not there (any more, or yet), or not named where there are several."""
        return (topic for topic in self.topics.values() if self.cluster_of(topic) not in self.clusters)


def topic_name(body: Json) -> str:
    """The topic that a Topic is about."""
    return str(body.get("spec", {}).get("topicName") or body["metadata"]["name"])


def _subject(topic: Json) -> Key:
    return Key(topic["metadata"]["namespace"], topic_name(topic))


def key_of(body: Json) -> Key:
    """Where this resource is."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
