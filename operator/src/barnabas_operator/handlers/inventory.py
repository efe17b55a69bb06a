"""The resources as the watch last told them, and which Cluster a Topic belongs to."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas_core.topic_name import folded

Json = Mapping[str, Any]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NOBODY: Final = ""
"""In the place of the Cluster that a Topic names."""


class Key(NamedTuple):
    """Where a resource is."""

    namespace: str
    name: str


class Inventory:
    """Filled by the watch; everything else reads. A look for a Cluster's Topics costs what they are, not all."""

    def __init__(self) -> None:
        self.clusters: Final[dict[Key, Json]] = {}
        self.topics: Final[dict[Key, Json]] = {}
        self._clusters_in: Final[defaultdict[str, set[Key]]] = defaultdict(set)
        self._by_named: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """By namespace and the Cluster that they name, the Topics by name."""
        self._by_topic: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """By namespace and topic (the same for topics whose names collide), the Topics about it by name: thousands are
        asked about one by one."""

    def bodies(self) -> Iterator[Json]:
        """All."""
        yield from self.clusters.values()
        yield from self.topics.values()

    def cluster_of(self, topic: Json) -> Key | None:
        """The Cluster that a Topic names, though it may not be there; where it names none, the one that has its topic.

        Only where none has it yet it is the only Cluster there is: a second one takes no topic away from the first.
        """
        return self._cluster_at(_named(topic))

    def topics_of(self, cluster: Key) -> Iterator[Json]:
        """The Topics of a Cluster."""
        yield from self._by_named.get(cluster, {}).values()
        unnamed = Key(cluster.namespace, NOBODY)
        if self._cluster_at(unnamed) == cluster:
            yield from self._by_named.get(unnamed, {}).values()

    def namesake_of(self, topic: Json) -> str | None:
        """Another Topic of the same topic in the same Cluster."""
        return next((name for name, other in self._alike(topic) if topic_name(other) == topic_name(topic)), None)

    def colliding_with(self, topic: Json) -> str | None:
        """Another Topic in the same Cluster whose topic's name differs in `.` and `_` only."""
        return next((name for name, other in self._alike(topic) if topic_name(other) != topic_name(topic)), None)

    def _alike(self, topic: Json) -> Iterator[tuple[str, Json]]:
        cluster, name = self.cluster_of(topic), topic["metadata"]["name"]
        there = self._by_topic.get(_subject(topic), {}) if cluster else {}
        return ((each, body) for each, body in there.items() if each != name and self.cluster_of(body) == cluster)

    def stray_topics(self) -> Iterator[Json]:
        """Topics without a Cluster: it is not there (any more, or yet), or not named where there are several."""
        for named, topics in self._by_named.items():
            if self._cluster_at(named) not in self.clusters:
                yield from topics.values()

    def keep(self, body: Json, *, is_gone: bool) -> None:
        """What the watch tells of a Cluster or a Topic, or a listing, which may be older.

        kopf keeps the order of what it tells of one object, not of that and another one which has its name since.
        """
        known = (self.clusters if body["kind"] == "Cluster" else self.topics).get(key_of(body))
        if known is not None and (_is_older(body, known) or (is_gone and _is_another(body, known))):
            return
        if body["kind"] == "Cluster":
            self._keep_cluster(key_of(body), body, is_gone=is_gone)
        else:
            self._keep_topic(key_of(body), body, is_gone=is_gone)

    def _cluster_at(self, named: Key) -> Key | None:
        if named.name != NOBODY:
            return named
        there = self._clusters_in.get(named.namespace, ())
        return next(iter(there)) if len(there) == 1 else None

    def _keep_cluster(self, key: Key, body: Json, *, is_gone: bool) -> None:
        self.clusters.pop(key, None)
        self._clusters_in[key.namespace].discard(key)
        if not is_gone:
            self.clusters[key] = needed(body)
            self._clusters_in[key.namespace].add(key)

    def _keep_topic(self, key: Key, body: Json, *, is_gone: bool) -> None:
        before = self.topics.pop(key, None)
        if before is not None:
            _take(self._by_named, _named(before), key.name)
            _take(self._by_topic, _subject(before), key.name)
        if not is_gone:
            kept = self.topics[key] = needed(body)
            self._by_named[_named(kept)][key.name] = kept
            self._by_topic[_subject(kept)][key.name] = kept


def needed(body: Json) -> Json:
    """Without what nobody reads here, more than half of it: who wrote which field, and what kubectl applied last."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if LAST_APPLIED in meta.get("annotations", {}):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != LAST_APPLIED}
    return {**body, "metadata": meta}


def topic_name(body: Json) -> str:
    """The topic that a Topic is about."""
    return str(body.get("spec", {}).get("topicName") or body["metadata"]["name"])


def key_of(body: Json) -> Key:
    """Where this resource is."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _is_older(body: Json, known: Json) -> bool:
    """Only versions of the same object have an order; of two objects one was made first."""
    meta, known_meta = body["metadata"], known["metadata"]
    if _is_another(body, known):
        return bool(meta.get("creationTimestamp", "") < known_meta.get("creationTimestamp", ""))
    return int(meta.get("resourceVersion", 0)) < int(known_meta.get("resourceVersion", 0))


def _is_another(body: Json, known: Json) -> bool:
    return bool(body["metadata"].get("uid") != known["metadata"].get("uid"))


def _named(topic: Json) -> Key:
    named = topic.get("spec", {}).get("cluster") or topic.get("status", {}).get("cluster") or NOBODY
    return Key(topic["metadata"]["namespace"], named)


def _subject(topic: Json) -> Key:
    return Key(topic["metadata"]["namespace"], folded(topic_name(topic)))


def _take(kept: defaultdict[Key, dict[str, Json]], at: Key, name: str) -> None:
    about = kept[at]
    del about[name]
    if not about:
        del kept[at]
