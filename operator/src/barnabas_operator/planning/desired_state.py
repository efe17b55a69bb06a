"""Resources that are declared in files, with the metadata and status that the API server would keep for them."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from barnabas_operator.planning.rebalance_request import NamedRebalance, named_rebalance, named_run
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.manifests import Manifests, ResourceT
from barnabas_operator.resources.resource import Resource
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.user import User


class DesiredState(NamedTuple):
    """The declared resources, and the topics, groups and users that are no longer declared."""

    cluster: Cluster
    topics: tuple[Topic, ...]
    removed: tuple[Topic, ...]
    groups: tuple[ConsumerGroup, ...] = ()
    removed_groups: tuple[ConsumerGroup, ...] = ()
    named: NamedRebalance | None = None
    """The rebalance plan that the annotation `barnabas.dev/rebalance` of the Cluster names."""
    users: tuple[User, ...] = ()
    removed_users: tuple[User, ...] = ()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All resources of all kinds, including resources that are no longer declared."""
        kept = (*self.groups, *self.removed_groups, *self.users, *self.removed_users)
        return (self.cluster, *self.topics, *self.removed, *kept)


def remember(manifests: Manifests, known: DesiredState | None, now: str, new_uid: Callable[[], str]) -> DesiredState:
    """Return the declared resources, each with its uid, creation time, generation and last status.

    `manifests` must hold exactly one Cluster.
    """
    topics = (*known.topics, *known.removed) if known else ()
    groups = (*known.groups, *known.removed_groups) if known else ()
    users = (*known.users, *known.removed_users) if known else ()
    (cluster,) = _merge(manifests.of_kind(Cluster), (known.cluster,) if known else (), now, new_uid)
    declared = _merge(manifests.of_kind(Topic), topics, now, new_uid)
    declared_groups = _merge(manifests.of_kind(ConsumerGroup), groups, now, new_uid)
    declared_users = _merge(manifests.of_kind(User), users, now, new_uid)
    name = named_run(cluster)
    return DesiredState(
        cluster,
        declared,
        _no_more(topics, declared),
        declared_groups,
        _no_more(groups, declared_groups),
        # Manifest files cannot declare a MaintenanceJob, so the plan of a named MaintenanceJob is always refused.
        named_rebalance(name, None) if name is not None else None,
        declared_users,
        _no_more(users, declared_users),
    )


def _no_more(known: Iterable[ResourceT], declared: Iterable[ResourceT]) -> tuple[ResourceT, ...]:
    names = {resource.metadata.name for resource in declared}
    return tuple(resource for resource in known if resource.metadata.name not in names)


def _merge(
    declared: Iterable[ResourceT], known: Iterable[ResourceT], now: str, new_uid: Callable[[], str]
) -> tuple[ResourceT, ...]:
    by_name = {resource.metadata.name: resource for resource in known}
    return tuple(_continue(resource, by_name.get(resource.metadata.name), now, new_uid) for resource in declared)


def _continue(resource: ResourceT, before: ResourceT | None, now: str, new_uid: Callable[[], str]) -> ResourceT:
    if before is None:
        meta = replace(resource.metadata, uid=new_uid(), creation_timestamp=now, generation=1)
        return replace(resource, metadata=meta, status=None)
    old = before.metadata
    generation = (old.generation or 0) + (resource.spec != before.spec)
    meta = replace(resource.metadata, uid=old.uid, creation_timestamp=old.creation_timestamp, generation=generation)
    return replace(resource, metadata=meta, status=before.status)
