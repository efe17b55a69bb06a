"""The `Cluster` resource: brokers, their disks, listeners and configs.

The fields that only concern Kubernetes (images, resources, storage classes, racks) are ignored by `barnabas up`.
"""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import (
    ClusterTemplate,
    Json,
    JsonObject,
    ListenerTemplate,
    Message,
    Quantity,
    Resource,
    Status,
    with_security,
)
from barnabas_operator.resources.maintenance_run import ENTRIES_MAX, MaintenanceEntry
from barnabas_operator.resources.security import (
    Authentication,
    Authorization,
    CertificateAuthority,
    CertificateStatus,
    LagExporter,
    Metrics,
)
from barnabas_operator.resources.topic import ConfigValue

BROKERS_MAX: Final = 1_000
VOLUMES_MAX: Final = 64
LISTENERS_MAX: Final = 8
CERTIFICATES_MAX: Final = 8
METADATA_VERSION_MAX: Final = 32_767
"""The highest metadata version, because Kafka's protocol has 16 bits for the level of a feature."""
BOOTSTRAP_LENGTH_MAX: Final = 262_144
"""The maximum length in characters of the bootstrap servers: BROKERS_MAX host names of 253 characters, with ports."""

ListenerType = Literal["internal", "nodeport", "loadbalancer"]
NodeAddressType = Literal["ExternalDNS", "ExternalIP", "InternalIP", "InternalDNS", "Hostname"]
_IN_ORDER: Final = ", ".join(get_args(NodeAddressType))
RebalanceMode = Literal["Manual", "Automatic"]
SecurityStageName = Literal["Offered", "Used", "Secured"]
SecurityName = Literal["Secured", "Insecure"]
ClusterDeletionPolicy = Literal["Retain", "Delete", "Protect"]


class Resources(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The resource requests and limits of a broker's container, for cpu and memory."""

    requests: Annotated[
        dict[str, Quantity],
        Meta(description="the resources that Kubernetes reserves for a broker; memory must be at least 128Mi"),
    ] = field(default_factory=lambda: {"cpu": "200m", "memory": "256Mi"})
    limits: Annotated[
        dict[str, Quantity],
        Meta(description="the highest amount of resources that a broker may use; memory must be at least 128Mi"),
    ] = field(default_factory=lambda: {"memory": "1Gi"})


class Rack(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The node label by which brokers are spread over racks. The label's value on a node is the `broker.rack` there."""

    topology_key: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=317,
            pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
            description="the name of a node label, such as topology.kubernetes.io/zone",
        ),
    ] = "topology.kubernetes.io/zone"


class Brokers(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The brokers, numbered from 0."""

    replicas: Annotated[int, Meta(ge=1, le=BROKERS_MAX, description="how many brokers")] = 1
    image: Annotated[
        str, Meta(pattern=r"^\S*$", description="an image name without spaces; the default is the chart's brokerImage")
    ] = ""
    resources: Resources = Resources()
    rack: (
        Annotated[
            Rack,
            Meta(
                description="the node label that names the rack of a broker; brokers are spread over the racks; {}"
                " means topology.kubernetes.io/zone; if left out, brokers have no racks"
            ),
        ]
        | None
    ) = None


class Volume(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A disk that each broker has, with a log dir and a PersistentVolumeClaim."""

    id: Annotated[int, Meta(ge=0, le=999, description="the disk's permanent id, unique within the list")]
    size: Annotated[
        Quantity, Meta(description="the size, at least 1Gi; can only grow, and only if the storage class allows it")
    ] = "10Gi"
    storage_class: Annotated[str | None, Meta(description="the storage class; if left out, the default class")] = None
    delete_claim: Annotated[
        bool, Meta(description="if true, the claim is deleted when the Cluster is deleted or the broker is removed")
    ] = False


class Storage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The disks of each broker (JBOD)."""

    volumes: Annotated[
        tuple[Volume, ...],
        Meta(min_length=1, max_length=VOLUMES_MAX, description="the disks of each broker; each disk has one log dir"),
    ] = (Volume(id=0),)


class Listener(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A listener to which clients connect."""

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
                "the port, unique within the list; in pods at least 1024, and neither 9091 nor 9404; with "
                "`barnabas up`, 0 means any free port"
            ),
        ),
    ] = 9092
    type: Annotated[
        ListenerType,
        Meta(
            description=(
                "how clients connect: from pods (internal), through a port of each node (nodeport), or through a load"
                " balancer"
            )
        ),
    ] = "internal"
    tls: Annotated[bool, Meta(description="if true, clients must use TLS; the brokers' CA signs the certificates")] = (
        False
    )
    authentication: (
        Annotated[
            Authentication, Meta(description="how clients authenticate; if left out, clients need no credentials")
        ]
        | None
    ) = None
    advertised_host: Annotated[
        str | None,
        Meta(description="the advertised host; if left out, the host of the broker's node or load balancer"),
    ] = None
    alternative_names: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        Meta(
            max_length=32,
            description="further host names and IP addresses for the brokers' certificate, by which clients connect:"
            " names of a proxy, or DNS records of your own; a name may begin with `*.`",
        ),
    ] = ()
    preferred_node_port_address_type: Annotated[
        NodeAddressType | None,
        Meta(
            description="the type of node address that a broker advertises; if left out, or if the node has no"
            " address of"
            f" this type, the first of {_IN_ORDER} that the node has"
        ),
    ] = None

    network_policy_peers: Annotated[
        tuple[JsonObject, ...],
        Meta(
            max_length=64,
            description="the peers that may connect, as in the field `from` of a NetworkPolicy; if left out,"
            " everybody may connect",
        ),
    ] = ()
    template: Annotated[
        ListenerTemplate,
        Meta(description="fields to add or override in this listener's Services; forbidden for an internal listener"),
    ] = ListenerTemplate()

    @property
    def is_open(self) -> bool:
        """True if clients connect without TLS and without authentication."""
        return not self.tls and self.authentication is None

    @property
    def is_at_node(self) -> bool:
        """True if a broker advertises the address of its node."""
        return self.type == "nodeport" and not self.advertised_host


class Rolling(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The options of rolling restarts."""

    max_unavailable_per_rack: Annotated[
        int,
        Meta(
            ge=1,
            le=BROKERS_MAX,
            description="how many brokers of one rack may restart together; brokers of different racks never restart"
            " together",
        ),
    ] = 1
    pause: Annotated[bool, Meta(description="if true, the operator restarts no brokers")] = False


class ClusterSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a cluster."""

    brokers: Brokers = Brokers()
    storage: Annotated[
        Storage,
        Meta(description="the disks of each broker; if left out, one disk of 10Gi of the default storage class"),
    ] = Storage()
    insecure: Annotated[
        bool,
        Meta(
            description="if true, listeners with neither tls nor authentication are allowed; has no effect with"
            " `barnabas up`, where brokers listen only on this machine"
        ),
    ] = False
    listeners: Annotated[
        tuple[Listener, ...],
        Meta(
            min_length=1,
            max_length=LISTENERS_MAX,
            description="the listeners, each with a different name and port; if left out, one internal listener at"
            " port 9092; on Kubernetes, this listener has TLS, SCRAM-SHA-512 and authorization unless insecure is true",
        ),
    ] = (Listener(name="plain"),)
    authorization: (
        Annotated[
            Authorization,
            Meta(
                description=(
                    "the authorization of clients, for which each listener must have authentication; if left out,"
                    " clients may do everything"
                )
            ),
        ]
        | None
    ) = None
    cluster_ca: Annotated[
        CertificateAuthority,
        Meta(description="the CA that signs the brokers' certificates, in the Secret NAME-cluster-ca"),
    ] = CertificateAuthority()
    clients_ca: Annotated[
        CertificateAuthority,
        Meta(description="the CA that signs the certificates of users, in the Secret NAME-clients-ca"),
    ] = CertificateAuthority()
    config: Annotated[dict[str, ConfigValue], Meta(description="Kafka's broker configs, the same for all brokers")] = {}
    rolling: Rolling = Rolling()
    metadata_version: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=METADATA_VERSION_MAX,
                description="the metadata version, which is never lowered; if left out, the highest version that all"
                " brokers support",
            ),
        ]
        | None
    ) = None
    template: ClusterTemplate = ClusterTemplate()
    rebalance: Annotated[
        RebalanceMode,
        Meta(
            description="how replicas are rebalanced: Manual waits for approval by an annotation, Automatic needs no"
            " approval"
        ),
    ] = "Manual"
    lag_exporter: (
        Annotated[
            LagExporter,
            Meta(
                description="a pod that exports the lag of consumer groups to Prometheus; {} exports all groups; if"
                " left out, there is no such pod"
            ),
        ]
        | None
    ) = None
    metrics: (
        Annotated[
            Metrics,
            Meta(
                description="what protects the metrics of brokers and lag exporter; needs a secured Cluster; has no"
                " effect with `barnabas up`; if left out, everybody who reaches the pods can read the metrics"
            ),
        ]
        | None
    ) = None
    maintenance: Annotated[
        tuple[MaintenanceEntry, ...],
        Meta(max_length=ENTRIES_MAX, description="scheduled maintenance jobs, each with a different name"),
    ] = ()
    deletion_policy: Annotated[
        ClusterDeletionPolicy,
        Meta(
            description="what happens when this resource is deleted: Retain keeps the disks, Delete deletes the disks,"
            " Protect keeps the brokers and disks"
        ),
    ] = "Retain"
    pause: Annotated[bool, Meta(description="if true, the operator changes neither brokers nor topics")] = False


RESTART_ID_MAX: Final = 253
"""The maximum length of the annotation barnabas.dev/restart in characters; what follows is ignored."""


class ListenerStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The addresses of a listener."""

    name: Annotated[str, Meta(description="the listener's name")]
    bootstrap_servers: Annotated[
        str, Meta(max_length=BOOTSTRAP_LENGTH_MAX, description="the value for the clients' bootstrap.servers")
    ]


class RollingStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The progress of a rolling restart."""

    remaining: Annotated[
        tuple[int, ...], Meta(max_length=BROKERS_MAX, description="the ids of the brokers that still have to restart")
    ] = ()
    restarting: Annotated[
        tuple[int, ...], Meta(max_length=BROKERS_MAX, description="the ids of the brokers that are restarting")
    ] = ()
    blocked_by: Annotated[str, Meta(description="the reason why the next broker cannot restart yet")] = ""
    message: Annotated[Message, Meta(description="a sentence that says why the next broker cannot restart yet")] = ""


class ClusterStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of the cluster at the last reconciliation."""

    listeners: Annotated[tuple[ListenerStatus, ...], Meta(description="the addresses of the listeners")] = ()
    metrics: Annotated[
        tuple[str, ...], Meta(max_length=BROKERS_MAX, description="the metrics address of each broker")
    ] = ()
    certificates: Annotated[
        tuple[CertificateStatus, ...],
        Meta(max_length=CERTIFICATES_MAX, description="the certificates of a secured Cluster, and when they expire"),
    ] = ()
    cluster_id: Annotated[str, Meta(description="Kafka's cluster id")] | None = None
    metadata_version: (
        Annotated[
            int, Meta(description="the current metadata version; brokers that do not support this version do not start")
        ]
        | None
    ) = None
    brokers: (
        Annotated[
            int,
            Meta(description="how many brokers must run now, including brokers that are drained before their removal"),
        ]
        | None
    ) = None
    ready_brokers: Annotated[int, Meta(description="how many brokers have all their replicas in sync")] | None = None
    topics: Annotated[int, Meta(description="the number of topics, including internal topics")] | None = None
    rolling: RollingStatus | None = None
    restarted: (
        Annotated[
            str,
            Meta(
                max_length=RESTART_ID_MAX,
                description="the value of the annotation barnabas.dev/restart that all brokers have restarted for",
            ),
        ]
        | None
    ) = None
    security: (
        Annotated[
            SecurityName,
            Meta(
                description="Insecure if spec.insecure is true, or else Secured: each listener must have tls or"
                " authentication"
            ),
        ]
        | None
    ) = None
    administrator: (
        Annotated[str, Meta(description="the Secret with client.properties for the user admin, who may do everything")]
        | None
    ) = None
    security_stage: (
        Annotated[
            SecurityStageName,
            Meta(
                description="TLS between brokers: Offered if brokers accept TLS, Used if brokers connect by TLS,"
                " Secured if brokers accept only TLS; left out without TLS"
            ),
        ]
        | None
    ) = None
    controller: Annotated[int, Meta(description="the id of the broker that is the controller")] | None = None
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
        """Return the spec with the defaults for security, which depend on `spec.insecure`."""
        return with_security(body)

    @property
    def erases(self) -> bool:
        """True if deleting the Cluster deletes disks."""
        return self.spec.deletion_policy == "Delete" or any(each.delete_claim for each in self.spec.storage.volumes)
