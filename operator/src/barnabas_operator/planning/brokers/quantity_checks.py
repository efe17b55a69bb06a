"""The checks of the CPU, memory and disk sizes that a Cluster declares."""

from collections.abc import Iterator

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import MEMORY_MIN, SIZE_MIN
from barnabas_operator.resources.quantity import quantity_value, shown_amount
from barnabas_operator.resources.schema_check import Path, dotted


def resource_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each field with an invalid quantity, and the message."""
    yield from _requests_above_limits(cluster)
    yield from _too_little_memory(cluster)
    yield from _tiny_disks(cluster)


def _requests_above_limits(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each request, declared or default, that is above its limit."""
    resources = cluster.spec.brokers.resources
    for name, asked in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and quantity_value(asked) > quantity_value(limit):
            path = ("spec", "brokers", "resources", "requests", name)
            yield path, f"{'.'.join(path)} is {asked}; allowed: at most {limit}, the value in limits"


def _too_little_memory(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each memory amount below the minimum, such as a number whose unit was forgotten."""
    resources = cluster.spec.brokers.resources
    for field, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        memory = amounts.get("memory")
        if memory is not None and quantity_value(memory) < quantity_value(MEMORY_MIN):
            path = ("spec", "brokers", "resources", field, "memory")
            yield path, f"{'.'.join(path)} is {shown_amount(memory)}; allowed: {MEMORY_MIN} or more"


def _tiny_disks(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    for index, volume in enumerate(cluster.spec.storage.volumes):
        if quantity_value(volume.size) < quantity_value(SIZE_MIN):
            path = ("spec", "storage", "volumes", index, "size")
            yield path, f"{dotted(path)} is {shown_amount(volume.size)}; allowed: {SIZE_MIN} or more, such as 10Gi"
