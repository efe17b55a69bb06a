"""The fields of a Cluster for authentication, authorization and certificates."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import JsonObject, Quantity, Template
from barnabas_operator.resources.maintenance_run import SecretKeyRef

AuthenticationType = Literal["tls", "scram-sha-512", "plain"]
SUPER_USERS_MAX: Final = 64
UserName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$",
        description="at most 64 letters, digits, '.', '-' and '_'",
    ),
]
"""A user name that a certificate can contain."""


class Authentication(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The authentication of clients at a listener."""

    type: Annotated[
        AuthenticationType,
        Meta(
            description="how clients authenticate: by a certificate (tls) or a password (scram-sha-512 or plain); tls"
            " and plain need a listener with tls: true"
        ),
    ]


class Authorization(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The authorization of clients by ACLs, which needs authentication at every listener."""

    type: Annotated[Literal["simple"], Meta(description="the kind of authorization; simple uses Kafka's ACLs")] = (
        "simple"
    )
    super_users: Annotated[
        tuple[UserName, ...],
        Meta(max_length=SUPER_USERS_MAX, description="the users who may do everything, in addition to the user admin"),
    ] = ()
    allow_everyone_if_no_acl_found: Annotated[
        bool, Meta(description="if true, every user may do everything with a Kafka resource that has no ACL")
    ] = False


class CertificateAuthority(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A certificate authority (CA)."""

    generate_certificate_authority: Annotated[
        bool,
        Meta(
            description="if false, the operator creates no CA; you create and renew the CA's certificate and key in"
            " Secrets"
        ),
    ] = True


class CertificateStatus(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A certificate of brokers, clients or a CA, and its expiry."""

    name: Annotated[str, Meta(description="the name of the Secret with the certificate")]
    not_after: Annotated[str, Meta(description="when the certificate expires (RFC 3339)")]
    renewal_time: (
        Annotated[
            str,
            Meta(description="when the operator renews the certificate; left out if the operator does not renew it"),
        ]
        | None
    ) = None


class Metrics(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings with which brokers and lag exporter serve `/metrics` over TLS, and only with a bearer token."""

    token_secret: Annotated[
        SecretKeyRef,
        Meta(
            description="the key of a Secret with the bearer token that `/metrics` asks for; a missing Secret"
            " keeps pods from starting"
        ),
    ]


class LagExporterResources(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The resource requests and limits of the lag exporter's container, for cpu and memory."""

    requests: Annotated[
        dict[str, Quantity], Meta(description="the resources that Kubernetes reserves for the container")
    ] = field(default_factory=lambda: {"cpu": "50m", "memory": "96Mi"})
    limits: Annotated[
        dict[str, Quantity], Meta(description="the highest amount of resources that the container may use")
    ] = field(default_factory=lambda: {"memory": "512Mi"})


class LagExporterTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes to the lag exporter's Kubernetes objects, each given as a partial object."""

    deployment: Annotated[Template, Meta(description="the Deployment")] = Template()
    pod: Annotated[Template, Meta(description="its pod")] = Template()
    container: Annotated[JsonObject, Meta(description="the container lag-exporter")] = {}
    pod_monitor: Annotated[
        Template, Meta(description="the PodMonitor, which exists if the API server has the kind PodMonitor")
    ] = Template()


class LagExporter(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The lag exporter. Regular expressions have Python's syntax, and may match any part of a name."""

    topic_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; only topics whose name matches are exported")
    ] = ".*"
    topic_exclude_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; topics whose name matches are not exported")
    ] = "^$"
    group_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; only groups whose id matches are exported")
    ] = ".*"
    group_exclude_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; groups whose id matches are not exported")
    ] = "^$"
    image: Annotated[
        str, Meta(pattern=r"^\S*$", description="an image name without spaces; the default is the operator's image")
    ] = ""
    resources: LagExporterResources = LagExporterResources()
    template: LagExporterTemplate = LagExporterTemplate()
