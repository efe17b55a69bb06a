"""Resources that are declared in files, with the metadata and status that the API server would keep for them."""

from collections.abc import Callable
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

    def of(kind: type[ResourceT], before: tuple[ResourceT, ...]) -> tuple[tuple[ResourceT, ...], tuple[ResourceT, ...]]:
        left = {each.metadata.name: each for each in before}
        declared = tuple(
            _continue(each, left.pop(each.metadata.name, None), now, new_uid) for each in manifests.of_kind(kind)
        )
        return declared, tuple(left.values())

    ((cluster,), _) = of(Cluster, (known.cluster,) if known else ())
    topics, removed = of(Topic, (*known.topics, *known.removed) if known else ())
    groups, removed_groups = of(ConsumerGroup, (*known.groups, *known.removed_groups) if known else ())
    users, removed_users = of(User, (*known.users, *known.removed_users) if known else ())
    name = named_run(cluster)
    # Manifest files cannot declare a MaintenanceJob, so the plan of a named MaintenanceJob is always refused.
    named = named_rebalance(name, None) if name is not None else None
    return DesiredState(cluster, topics, removed, groups, removed_groups, named, users, removed_users)


def _continue(resource: ResourceT, before: ResourceT | None, now: str, new_uid: Callable[[], str]) -> ResourceT:
    if before is None:
        meta = replace(resource.metadata, uid=new_uid(), creation_timestamp=now, generation=1)
        return replace(resource, metadata=meta, status=None)
    old = before.metadata
    generation = (old.generation or 0) + (resource.spec != before.spec)
    meta = replace(resource.metadata, uid=old.uid, creation_timestamp=old.creation_timestamp, generation=generation)
    return replace(resource, metadata=meta, status=before.status)
