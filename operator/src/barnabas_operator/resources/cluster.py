"""The `Cluster` resource: brokers, their disks, listeners and configs."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_operator.resources.object_meta import API_VERSION, Condition, ObjectMeta
from barnabas_operator.resources.topic import ConfigValue

BROKERS_MAX: Final = 1_000
VOLUMES_MAX: Final = 64


class Brokers(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The brokers, numbered from 0."""

    replicas: Annotated[int, Meta(ge=1, le=BROKERS_MAX, description="how many brokers")] = 1


class Volume(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One disk of each broker: one log dir."""

    id: Annotated[int, Meta(ge=0, description="stays with the disk; unique within the list")]


class Storage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Each broker's disks (JBOD)."""

    volumes: Annotated[
        tuple[Volume, ...], Meta(min_length=1, max_length=VOLUMES_MAX, description="each is a log dir of its own")
    ] = (Volume(id=0),)


class Listener(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where clients reach the brokers."""

    name: Annotated[
        str,
        Meta(
            min_length=1, max_length=11, pattern=r"^[a-z0-9]+$", description="lower-case letters and digits, 11 at most"
        ),
    ]
    port: Annotated[int, Meta(ge=0, le=65535, description="0 takes any free port, once, and keeps it")] = 9092


class ClusterSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a cluster shall be."""

    brokers: Brokers = Brokers()
    storage: Storage = Storage()
    listeners: Annotated[tuple[Listener, ...], Meta(min_length=1, max_length=1)] = (Listener(name="plain"),)
    config: Annotated[dict[str, ConfigValue], Meta(description="Kafka's broker configs, the same for all brokers")] = {}


class ListenerStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a listener can be reached."""

    name: str
    bootstrap_servers: str


class ClusterStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What the cluster was found to be at the last reconciliation."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int | None = None
    listeners: tuple[ListenerStatus, ...] = ()
    metrics: Annotated[tuple[str, ...], Meta(description="each broker's metrics address")] = ()
    ready_brokers: int | None = None
    controller: int | None = None
    under_replicated_partitions: int | None = None
    offline_partitions: int | None = None


class Cluster(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A cluster of brokers."""

    api_version: Literal["barnabas.dev/v1alpha1"] = API_VERSION
    kind: Literal["Cluster"] = "Cluster"
    metadata: ObjectMeta
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus | None = None
