"""What is wrong with the amounts that a Cluster asks Kubernetes for: it would say so only of the pods. Pure."""

from collections.abc import Iterator

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.quantity import quantity_value
from barnabas_operator.resources.schema_check import Path


def resource_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Each field with what is wrong."""
    yield from _requests_above_limits(cluster)
    yield from _disks_of_nothing(cluster)


def _requests_above_limits(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """What is left out counts as well: a request has a default, which a low limit must not undercut."""
    resources = cluster.spec.brokers.resources
    for name, asked in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and quantity_value(asked) > quantity_value(limit):
            path = ("spec", "brokers", "resources", "requests", name)
            yield path, f"{'.'.join(path)} is {asked}; allowed: at most {limit}, its limit"


def _disks_of_nothing(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    for index, volume in enumerate(cluster.spec.storage.volumes):
        if quantity_value(volume.size) < 1:
            message = f"spec.storage.volumes[{index}].size is {volume.size}; allowed: more than 0, such as 10Gi"
            yield ("spec", "storage", "volumes", index, "size"), message
