"""All resources as the watch last reported them, indexed by Cluster."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from barnabas_operator.resources.cluster_kind import CLUSTER, KINDS
from barnabas_operator.resources.kind import Json, Key, Kind, key_of

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NOBODY: Final = ""
"""The Cluster name under which the index keeps resources that name no Cluster."""


class Inventory:
    """All resources as the watch last reported them. Only the watch changes the inventory."""

    def __init__(self) -> None:
        self.clusters: Final[dict[Key, Json]] = {}
        self.cron_jobs: Final[dict[Key, Json]] = {}
        """The CronJobs of all Clusters' maintenance schedules."""
        self._clusters_in: Final[defaultdict[str, set[Key]]] = defaultdict(set)
        self._members: Final = {name: _Members(kind) for name, kind in KINDS.items() if kind is not CLUSTER}

    def of_kind(self, kind: str) -> Mapping[Key, Json]:
        """Return all resources of one kind."""
        return self.clusters if kind == CLUSTER.name else self._members[kind].all

    def bodies(self) -> Iterator[Json]:
        """Yield all resources of all kinds."""
        for kind in (CLUSTER.name, *self._members):
            yield from self.of_kind(kind).values()

    def cluster_of(self, body: Json) -> Key | None:
        """Return the Cluster that a resource belongs to, even if that Cluster does not exist.

        The field `spec.cluster` takes precedence over `status.cluster`. If both are missing, return the only Cluster of
        the namespace, or None if the namespace has no Cluster or several. A Cluster belongs to itself.
        """
        return key_of(body) if body["kind"] == CLUSTER.name else self._cluster_at(_named(body))

    def resources_of(self, kind: str, cluster: Key) -> Iterator[Json]:
        """Yield a Cluster's resources of the given kind."""
        members = self._members[kind]
        yield from members.naming(cluster).values()
        unnamed = Key(cluster.namespace, NOBODY)
        if self._cluster_at(unnamed) == cluster:
            yield from members.naming(unnamed).values()

    def namesake_of(self, body: Json) -> str | None:
        """Return the name of another resource of the same kind and Cluster with the same name in Kafka, or None."""
        named = KINDS[body["kind"]].name_in_kafka
        return next((name for name, other in self._alike(body) if named(other) == named(body)), None)

    def colliding_with(self, body: Json) -> str | None:
        """Return the name of another resource of the same kind and Cluster whose name in Kafka collides, or None.

        The names `a.b` and `a_b` of two topics collide.
        """
        named = KINDS[body["kind"]].name_in_kafka
        return next((name for name, other in self._alike(body) if named(other) != named(body)), None)

    def _alike(self, body: Json) -> Iterator[tuple[str, Json]]:
        cluster, name = self.cluster_of(body), body["metadata"]["name"]
        there = self._members[body["kind"]].alike(body) if cluster else {}
        return ((each, other) for each, other in there.items() if each != name and self.cluster_of(other) == cluster)

    def strays(self) -> Iterator[Json]:
        """Yield the resources that belong to no existing Cluster."""
        for members in self._members.values():
            for named, bodies in members.by_named():
                if self._cluster_at(named) not in self.clusters:
                    yield from bodies.values()

    def keep(self, body: Json, *, is_gone: bool) -> None:
        """Store or remove a resource that the watch has reported."""
        kind = body["kind"]
        if kind == CLUSTER.name:
            self._keep_cluster(key_of(body), body, is_gone=is_gone)
        else:
            self._members[kind].keep(key_of(body), body, is_gone=is_gone)

    def keep_cron_job(self, body: Json, *, is_gone: bool) -> None:
        """Store or remove a CronJob that the watch has reported."""
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
    """The resources of one kind, with indexes by Cluster and by name in Kafka."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.all: Final[dict[Key, Json]] = {}
        self._by_named: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """The resources in nested mappings: by namespace and the Cluster they refer to, and then by `metadata.name`."""
        self._by_subject: Final[defaultdict[Key, dict[str, Json]]] = defaultdict(dict)
        """The resources in nested mappings: by namespace and name in Kafka, and then by `metadata.name`.

        Resources whose names collide in Kafka have the same outer key.
        """

    def by_named(self) -> Iterable[tuple[Key, Mapping[str, Json]]]:
        """Return the resources, grouped by the Cluster that they refer to, even if that Cluster does not exist."""
        return self._by_named.items()

    def naming(self, cluster: Key) -> Mapping[str, Json]:
        """Return the resources that refer to this Cluster; the keys are their `metadata.name`."""
        return self._by_named.get(cluster, {})

    def alike(self, body: Json) -> Mapping[str, Json]:
        """Return the resources of the namespace with the same or a colliding name in Kafka, in any Cluster."""
        return self._by_subject.get(self._subject(body), {})

    def keep(self, key: Key, body: Json, *, is_gone: bool) -> None:
        """Store or remove the resource, and update the indexes."""
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
    """Return an object without managedFields and kubectl's last-applied-configuration, to save memory."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if LAST_APPLIED in meta.get("annotations", {}):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != LAST_APPLIED}
    return {**body, "metadata": meta}


def _named(body: Json) -> Key:
    named = body.get("spec", {}).get("cluster") or body.get("status", {}).get("cluster") or NOBODY
    return Key(body["metadata"]["namespace"], named)


def _take(kept: defaultdict[Key, dict[str, Json]], at: Key, name: str) -> None:
    """Remove a resource from an index, and the index entry if it becomes empty."""
    about = kept[at]
    del about[name]
    if not about:
        del kept[at]
