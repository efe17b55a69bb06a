"""The resources as the watch last reported them, and the Cluster of each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.kind import Kind
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_key import Key, key_of

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NOBODY: Final = ""
"""The value in place of the Cluster for resources that name none."""


class Inventory:
    """Filled by the watch; everything else reads. A look for a Cluster's resources costs what they are, not all."""

    def __init__(self) -> None:
        self.clusters: Final[dict[Key, Json]] = {}
        self.cron_jobs: Final[dict[Key, Json]] = {}
        """The CronJobs of the schedules of all Clusters."""
        self._clusters_in: Final[defaultdict[str, set[Key]]] = defaultdict(set)
        self._members: Final = {name: _Members(kind) for name, kind in KINDS.items() if kind is not CLUSTER}

    def of_kind(self, kind: str) -> Mapping[Key, Json]:
        """All resources of one kind."""
        return self.clusters if kind == CLUSTER.name else self._members[kind].all

    def bodies(self) -> Iterator[Json]:
        """All resources of all kinds."""
        for kind in (CLUSTER.name, *self._members):
            yield from self.of_kind(kind).values()

    def cluster_of(self, body: Json) -> Key | None:
        """The Cluster that a resource names, though it may not exist; without a name, the Cluster in its status.

        A resource without either belongs to the only Cluster of its namespace. A second Cluster takes no topic away
        from the first. A Cluster belongs to itself.
        """
        return key_of(body) if body["kind"] == CLUSTER.name else self._cluster_at(_named(body))

    def resources_of(self, kind: str, cluster: Key) -> Iterator[Json]:
        """Yield the resources of a Cluster that are of such a kind."""
        members = self._members[kind]
        yield from members.naming(cluster).values()
        unnamed = Key(cluster.namespace, NOBODY)
        if self._cluster_at(unnamed) == cluster:
            yield from members.naming(unnamed).values()

    def namesake_of(self, body: Json) -> str | None:
        """Return another resource of its kind that is about the same, in the same Cluster."""
        named = KINDS[body["kind"]].name_in_kafka
        return next((name for name, other in self._alike(body) if named(other) == named(body)), None)

    def colliding_with(self, body: Json) -> str | None:
        """Return another resource of its kind in the same Cluster, about a name that collides with its own."""
        named = KINDS[body["kind"]].name_in_kafka
        return next((name for name, other in self._alike(body) if named(other) != named(body)), None)

    def _alike(self, body: Json) -> Iterator[tuple[str, Json]]:
        cluster, name = self.cluster_of(body), body["metadata"]["name"]
        there = self._members[body["kind"]].alike(body) if cluster else {}
        return ((each, other) for each, other in there.items() if each != name and self.cluster_of(other) == cluster)

    def strays(self) -> Iterator[Json]:
        """Resources without a Cluster: it is not there (any more, or yet), or not named where there are several."""
        for members in self._members.values():
            for named, bodies in members.by_named():
                if self._cluster_at(named) not in self.clusters:
                    yield from bodies.values()

    def keep(self, body: Json, *, is_gone: bool) -> None:
        """Take in what the watch reports of a resource."""
        kind = body["kind"]
        if kind == CLUSTER.name:
            self._keep_cluster(key_of(body), body, is_gone=is_gone)
        else:
            self._members[kind].keep(key_of(body), body, is_gone=is_gone)

    def keep_cron_job(self, body: Json, *, is_gone: bool) -> None:
        """Take in what the watch reports of a CronJob of a Cluster."""
        self.cron_jobs.pop(key_of(body), None)
        if not is_gone:
            self.cron_jobs[key_of(body)] = needed(body)

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


class _Members:
    """The resources of one kind, which belong to Clusters."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.all: Final[dict[Key, Json]] = {}
        self._by_named: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """The resources by name, by namespace and the Cluster that they name."""
        self._by_subject: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """The resources by name, by namespace and their subject in Kafka (the same for names that collide).

        Thousands are asked about one by one.
        """

    def by_named(self) -> Iterable[tuple[Key, Mapping[str, Json]]]:
        """Return the resources by the Cluster that they name, whether it exists or not."""
        return self._by_named.items()

    def naming(self, cluster: Key) -> Mapping[str, Json]:
        """Return the resources that name this Cluster (or none), by name."""
        return self._by_named.get(cluster, {})

    def alike(self, body: Json) -> Mapping[str, Json]:
        """Return the resources about the same, or about a name that collides, in any Cluster of the namespace."""
        return self._by_subject.get(self._subject(body), {})

    def keep(self, key: Key, body: Json, *, is_gone: bool) -> None:
        """Replace what was known of a resource by its body, or forget it if it is gone."""
        before = self.all.pop(key, None)
        if before is not None:
            _take(self._by_named, _named(before), key.name)
            _take(self._by_subject, self._subject(before), key.name)
        if not is_gone:
            kept = self.all[key] = needed(body)
            self._by_named[_named(kept)][key.name] = kept
            self._by_subject[self._subject(kept)][key.name] = kept

    def _subject(self, body: Json) -> Key:
        return Key(body["metadata"]["namespace"], self._kind.folded(self._kind.name_in_kafka(body)))


def needed(body: Json) -> Json:
    """Return a body without the parts that nobody reads here, more than half of it.

    These are the managed fields, and the manifest that kubectl applied last.
    """
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if LAST_APPLIED in meta.get("annotations", {}):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != LAST_APPLIED}
    return {**body, "metadata": meta}


def _named(body: Json) -> Key:
    named = body.get("spec", {}).get("cluster") or body.get("status", {}).get("cluster") or NOBODY
    return Key(body["metadata"]["namespace"], named)


def _take(kept: defaultdict[Key, dict[str, Json]], at: Key, name: str) -> None:
    about = kept[at]
    del about[name]
    if not about:
        del kept[at]
