"""The `Cluster` resource: brokers, their disks, listeners and configs.

What only Kubernetes knows (images, resources, storage classes, racks) is left aside by `barnabas up`.
"""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct, field

from barnabas_operator.resources.cluster_security import with_security
from barnabas_operator.resources.json_types import Json, JsonObject
from barnabas_operator.resources.lag_exporter import LagExporter
from barnabas_operator.resources.maintenance_entry import ENTRIES_MAX, MaintenanceEntry
from barnabas_operator.resources.object_meta import Message
from barnabas_operator.resources.quantity import Quantity
from barnabas_operator.resources.resource import Resource, Status
from barnabas_operator.resources.security import (
    Authentication,
    Authorization,
    CertificateAuthority,
    CertificateStatus,
)
from barnabas_operator.resources.template import ClusterTemplate, ListenerTemplate
from barnabas_operator.resources.topic import ConfigValue

BROKERS_MAX: Final = 1_000
VOLUMES_MAX: Final = 64
LISTENERS_MAX: Final = 8
CERTIFICATES_MAX: Final = 8
METADATA_VERSION_MAX: Final = 32_767
"""Levels of features are 16 bits in Kafka's protocol."""
BOOTSTRAP_LENGTH_MAX: Final = 262_144
"""The length for the most brokers, each with a host name of 253 characters and a port."""

ListenerType = Literal["internal", "nodeport", "loadbalancer"]
NodeAddressType = Literal["ExternalDNS", "ExternalIP", "InternalIP", "InternalDNS", "Hostname"]
_IN_ORDER: Final = ", ".join(get_args(NodeAddressType))
RebalanceMode = Literal["Manual", "Automatic"]
SecurityStageName = Literal["Offered", "Used", "Secured"]
SecurityName = Literal["Secured", "Insecure"]
ClusterDeletionPolicy = Literal["Retain", "Delete", "Protect"]


class Resources(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The resources that a broker's container requests, and its limits: cpu, memory."""

    requests: Annotated[
        dict[str, Quantity],
        Meta(description="the resources that Kubernetes reserves for a broker; memory 128Mi or more"),
    ] = field(default_factory=lambda: {"cpu": "200m", "memory": "256Mi"})
    limits: Annotated[
        dict[str, Quantity], Meta(description="the most resources that a broker may use; memory 128Mi or more")
    ] = field(default_factory=lambda: {"memory": "1Gi"})


class Rack(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Brokers are spread over the values of a node label, and each knows its own as its `broker.rack`."""

    topology_key: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=317,
            pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
            description="a label's name such as topology.kubernetes.io/zone",
        ),
    ] = "topology.kubernetes.io/zone"


class Brokers(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The brokers, numbered from 0."""

    replicas: Annotated[int, Meta(ge=1, le=BROKERS_MAX, description="how many brokers")] = 1
    image: Annotated[str, Meta(pattern=r"^\S*$", description="without spaces; left out, the chart's brokerImage")] = ""
    resources: Resources = Resources()
    rack: (
        Annotated[
            Rack,
            Meta(description="spreads brokers over the values of a node label, {} over zones; left out, no racks"),
        ]
        | None
    ) = None


class Volume(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One disk of each broker: one log dir, one PersistentVolumeClaim."""

    id: Annotated[int, Meta(ge=0, le=999, description="the disk's permanent id, unique within the list")]
    size: Annotated[Quantity, Meta(description="1Gi or more; can only grow, if the storage class allows that")] = "10Gi"
    storage_class: Annotated[str | None, Meta(description="the storage class; left out, the default class")] = None
    delete_claim: Annotated[
        bool, Meta(description="true: the claim is deleted with the Cluster, or with its broker")
    ] = False


class Storage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Each broker's disks (JBOD)."""

    volumes: Annotated[
        tuple[Volume, ...], Meta(min_length=1, max_length=VOLUMES_MAX, description="each is a log dir of its own")
    ] = (Volume(id=0),)


class Listener(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A listener, by which clients reach the brokers."""

    name: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9]{1,11}$", description="at most 11 lower-case letters and digits"),
    ]
    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "in pods 1024 or more, and neither 9091 nor 9404; with `barnabas up` 0 takes "
                "any free port; each port once"
            ),
        ),
    ] = 9092
    type: Annotated[
        ListenerType,
        Meta(
            description=(
                "access from pods (internal), through a port of each node (nodeport), or through a load balancer"
            )
        ),
    ] = "internal"
    tls: Annotated[bool, Meta(description="true: TLS only, with a certificate of the brokers' own authority")] = False
    authentication: (
        Annotated[Authentication, Meta(description="how clients authenticate; left out, they need not")] | None
    ) = None
    advertised_host: Annotated[
        str | None,
        Meta(description="the host given to clients outside; left out, that of the broker's node or load balancer"),
    ] = None
    preferred_node_port_address_type: Annotated[
        NodeAddressType | None,
        Meta(description=f"which address of its node a broker advertises; else the first of {_IN_ORDER}"),
    ] = None

    network_policy_peers: Annotated[
        tuple[JsonObject, ...],
        Meta(max_length=64, description="who may connect, as in a NetworkPolicy's `from`; left out, everybody"),
    ] = ()
    template: Annotated[
        ListenerTemplate,
        Meta(description="changes of the Services of this listener; an internal one has none of its own"),
    ] = ListenerTemplate()

    @property
    def is_open(self) -> bool:
        """True if anybody may come, in clear."""
        return not self.tls and self.authentication is None

    @property
    def is_at_node(self) -> bool:
        """True if clients reach a broker by the address of the node that it runs on."""
        return self.type == "nodeport" and not self.advertised_host


class Rolling(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The way in which brokers restart when they have to."""

    max_unavailable_per_rack: Annotated[
        int,
        Meta(
            ge=1,
            le=BROKERS_MAX,
            description="how many brokers of one rack may restart together; brokers of two racks never do",
        ),
    ] = 1
    pause: Annotated[bool, Meta(description="true: no broker is restarted")] = False


class ClusterSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a cluster."""

    brokers: Brokers = Brokers()
    storage: Annotated[
        Storage, Meta(description="each broker's disks (JBOD); left out, one of 10Gi of the default class")
    ] = Storage()
    insecure: Annotated[
        bool,
        Meta(
            description="true: listeners may have neither tls nor authentication, as the one of a Cluster that declares"
            " none; without effect over files, where brokers listen on this machine alone"
        ),
    ] = False
    listeners: Annotated[
        tuple[Listener, ...],
        Meta(
            min_length=1,
            max_length=LISTENERS_MAX,
            description="the addresses where clients reach the brokers; each name and port only once; left out, one"
            " inside at port 9092: in pods secure (tls, scram-sha-512, authorization), or plain if insecure is true",
        ),
    ] = (Listener(name="plain"),)
    authorization: (
        Annotated[
            Authorization,
            Meta(
                description=(
                    "the rights of clients; left out, they may do everything. Each listener needs authentication"
                )
            ),
        ]
        | None
    ) = None
    cluster_ca: Annotated[
        CertificateAuthority, Meta(description="signs the certificates of the brokers: Secret NAME-cluster-ca")
    ] = CertificateAuthority()
    clients_ca: Annotated[
        CertificateAuthority, Meta(description="signs the certificates of users: Secret NAME-clients-ca")
    ] = CertificateAuthority()
    config: Annotated[dict[str, ConfigValue], Meta(description="Kafka's broker configs, the same for all brokers")] = {}
    rolling: Rolling = Rolling()
    metadata_version: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=METADATA_VERSION_MAX,
                description="the level of the metadata, never lowered; left out, the highest that all brokers support",
            ),
        ]
        | None
    ) = None
    template: ClusterTemplate = ClusterTemplate()
    rebalance: Annotated[
        RebalanceMode,
        Meta(description="moves replicas to brokers with fewer: Manual waits for an annotation, Automatic does not"),
    ] = "Manual"
    lag_exporter: (
        Annotated[
            LagExporter,
            Meta(description="a pod that exports the lag of groups to Prometheus, {} for all groups; left out, none"),
        ]
        | None
    ) = None
    maintenance: Annotated[
        tuple[MaintenanceEntry, ...],
        Meta(max_length=ENTRIES_MAX, description="scheduled maintenance jobs; each name only once"),
    ] = ()
    deletion_policy: Annotated[
        ClusterDeletionPolicy,
        Meta(description="when this resource is deleted, Retain keeps the disks, Delete does not; Protect keeps both"),
    ] = "Retain"
    pause: Annotated[bool, Meta(description="true: brokers and topics are left as they are")] = False


class ListenerStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The addresses of a listener."""

    name: Annotated[str, Meta(description="the listener's name")]
    bootstrap_servers: Annotated[
        str, Meta(max_length=BOOTSTRAP_LENGTH_MAX, description="the value for bootstrap.servers of clients")
    ]


class RollingStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A roll under way: which brokers are still to restart, which does, and what it waits for."""

    remaining: Annotated[
        tuple[int, ...], Meta(max_length=BROKERS_MAX, description="the brokers that are still to restart")
    ] = ()
    restarting: Annotated[
        tuple[int, ...], Meta(max_length=BROKERS_MAX, description="the brokers that restart now")
    ] = ()
    blocked_by: Annotated[str, Meta(description="the reason why the next one does not restart yet")] = ""
    message: Annotated[Message, Meta(description="the reason in words")] = ""


class ClusterStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of the cluster at the last reconciliation."""

    listeners: Annotated[tuple[ListenerStatus, ...], Meta(description="the addresses of the listeners")] = ()
    metrics: Annotated[tuple[str, ...], Meta(max_length=BROKERS_MAX, description="each broker's metrics address")] = ()
    certificates: Annotated[
        tuple[CertificateStatus, ...],
        Meta(max_length=CERTIFICATES_MAX, description="when the certificates of a secured Cluster expire"),
    ] = ()
    cluster_id: Annotated[str, Meta(description="the cluster id that Kafka's clients get")] | None = None
    metadata_version: (
        Annotated[
            int, Meta(description="the level of the metadata in use; brokers that do not support it do not start")
        ]
        | None
    ) = None
    brokers: (
        Annotated[
            int,
            Meta(description="how many brokers there are to be now: those declared, and those that are emptied first"),
        ]
        | None
    ) = None
    ready_brokers: Annotated[int, Meta(description="how many of them have all their replicas in sync")] | None = None
    topics: Annotated[int, Meta(description="how many topics there are, internal ones included")] | None = None
    rolling: RollingStatus | None = None
    security: (
        Annotated[
            SecurityName, Meta(description="Secured: no listener may be open; Insecure: spec.insecure lets them be")
        ]
        | None
    ) = None
    administrator: (
        Annotated[str, Meta(description="the Secret of the user admin, who may do everything: client.properties")]
        | None
    ) = None
    security_stage: (
        Annotated[
            SecurityStageName,
            Meta(description="how far all brokers speak TLS to each other: Offered, Used, Secured; left out, in clear"),
        ]
        | None
    ) = None
    controller: Annotated[int, Meta(description="the broker that is the controller")] | None = None
    under_replicated_partitions: (
        Annotated[int, Meta(description="how many partitions have replicas that are not in sync")] | None
    ) = None
    offline_partitions: Annotated[int, Meta(description="how many partitions have no leader")] | None = None


class Cluster(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A cluster of brokers."""

    kind: Literal["Cluster"] = "Cluster"
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus | None = None

    @classmethod
    def declared_spec(cls, body: Json) -> Json:
        """Return the spec with its security."""
        return with_security(body)

    @property
    def erases(self) -> bool:
        """True if deleting the Cluster deletes disks."""
        return self.spec.deletion_policy == "Delete" or any(each.delete_claim for each in self.spec.storage.volumes)
