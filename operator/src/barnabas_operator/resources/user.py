"""The kind `User`, with the field names and defaults of Strimzi's KafkaUser where possible."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_operator.resources.kind import Kind, Resource, Status, column, fixed
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.topic import DeletionPolicy

USERNAME_LENGTH_MAX: Final = 253
OVERLAP_SECONDS_MAX: Final = 7 * 24 * 3600
ACLS_MAX: Final = 256
OPERATIONS_MAX: Final = 13
RESOURCE_NAME_MAX: Final = 249
CERTIFICATE_NAME: Final = r"^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$"
"""The user names that a certificate can contain, of at most 64 characters (RFC 5280, ub-common-name)."""
CERTIFICATE_NAME_WORDS: Final = "1 to 64 letters, digits, '.', '_' and '-', with a letter or digit at both ends"
INTERNAL: Final = "__"
"""The prefix of the names of internal topics."""

UserAuthenticationType = Literal["scram-sha-512", "scram-sha-256", "tls", "external"]
AclType = Literal["allow", "deny"]
AclResourceType = Literal["topic", "group", "cluster", "transactionalId"]
AclPatternType = Literal["literal", "prefix"]
AclOperation = Literal[
    "All",
    "Alter",
    "AlterConfigs",
    "ClusterAction",
    "Create",
    "Delete",
    "Describe",
    "DescribeConfigs",
    "IdempotentWrite",
    "Read",
    "TwoPhaseCommit",
    "Write",
]
Username = Annotated[
    str,
    Meta(
        max_length=USERNAME_LENGTH_MAX,
        pattern=r"^[!-~]([ -~]{0,251}[!-~])?$",
        description="the user's name in Kafka, which cannot change; if left out, metadata.name; for a tls user"
        f" {CERTIFICATE_NAME_WORDS}",
    ),
]


class PasswordSource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The Secret that contains the password."""

    secret_key_ref: SecretKeyRef


class Password(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The source of the password, and its change to another one."""

    value_from: (
        Annotated[
            PasswordSource,
            Meta(description="the password; if left out, a password of 32 characters is generated"),
        ]
        | None
    ) = None
    overlap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=OVERLAP_SECONDS_MAX,
            description="how many seconds the previous password works beside a new one, and connections that logged in"
            " with it stay; 0 ends both at once, as a new value of the annotation barnabas.dev/revoke-password does at"
            " any time",
        ),
    ] = 0


class UserAuthentication(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The authentication of the user's clients."""

    type: Annotated[
        UserAuthenticationType,
        Meta(
            description="a password (scram-sha-512, scram-sha-256), a certificate (tls), or credentials from elsewhere"
            " (external), for which the operator creates no Secret"
        ),
    ]
    password: (
        Annotated[
            Password,
            Meta(
                description="where the password comes from, and how long the previous one works; allowed only for"
                " scram-sha-512 and scram-sha-256; if left out, a password of 32 characters is generated"
            ),
        ]
        | None
    ) = None


class AclResource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The Kafka resources that an ACL applies to."""

    type: Annotated[AclResourceType, Meta(description="the type of the resources; cluster means the whole Cluster")]
    name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=RESOURCE_NAME_MAX,
                description="the name, the prefix of names, or * for all; must be left out for the type cluster",
            ),
        ]
        | None
    ) = None
    pattern_type: Annotated[
        AclPatternType,
        Meta(description="literal matches only the name, prefix matches all names that begin with the name"),
    ] = "literal"


class AclRule(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An ACL, which allows or denies operations to the user."""

    type: Annotated[
        AclType, Meta(description="whether operations are allowed or denied; deny takes precedence over allow")
    ] = "allow"
    resource: AclResource
    host: Annotated[
        str,
        Meta(
            max_length=45,
            pattern=r"^(\*|[0-9a-fA-F:.]+)$",
            description="the IP address of the user's clients; * means any address",
            extra={"allowed": "one IP address, or *; no range of addresses and no host name"},
        ),
    ] = "*"
    operations: Annotated[
        tuple[AclOperation, ...],
        Meta(
            min_length=1,
            max_length=OPERATIONS_MAX,
            description="the operations that the ACL allows or denies, by their names in Kafka",
        ),
    ]


class UserAuthorization(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The rights of the user, which need spec.authorization in the Cluster."""

    type: Annotated[Literal["simple"], Meta(description="the kind of authorization; simple uses Kafka's ACLs")] = (
        "simple"
    )
    acls: Annotated[
        tuple[AclRule, ...],
        Meta(max_length=ACLS_MAX, description="the ACLs of the user; other ACLs of the user are removed"),
    ] = ()


class UserQuotas(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The quotas of the user at each broker. A quota that is left out does not limit the user."""

    producer_byte_rate: (
        Annotated[int, Meta(ge=1, description="how many bytes per second the user's clients may write")] | None
    ) = None
    consumer_byte_rate: (
        Annotated[int, Meta(ge=1, description="how many bytes per second the user's clients may read")] | None
    ) = None
    request_percentage: (
        Annotated[
            int,
            Meta(
                ge=1,
                description="the percentage of the time of a broker's event loop that the user's requests may take",
            ),
        ]
        | None
    ) = None
    controller_mutation_rate: (
        Annotated[float, Meta(description="how many partitions per second the user may create or delete; more than 0")]
        | None
    ) = None


class UserSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a user."""

    cluster: Annotated[
        str | None, Meta(description="the name of the Cluster; may be left out if the namespace has only one Cluster")
    ] = None
    username: Username | None = None
    authentication: UserAuthentication
    authorization: (
        Annotated[
            UserAuthorization,
            Meta(
                description=(
                    "the ACLs of the user; if left out, the user has no ACLs, and the operator removes ACLs that other"
                    " clients create for the user"
                )
            ),
        ]
        | None
    ) = None
    quotas: (
        Annotated[
            UserQuotas,
            Meta(
                description="the quotas of the user; if left out, the user has no quotas, and the operator removes"
                " quotas that other clients set for the user"
            ),
        ]
        | None
    ) = None
    deletion_policy: Annotated[
        DeletionPolicy,
        Meta(
            description="what happens when this resource is deleted: Delete removes password, ACLs and quotas from the"
            " Cluster, Retain keeps password, ACLs and quotas, Protect blocks the deletion"
        ),
    ] = "Delete"
    adopt: Annotated[bool, Meta(description="if true, this resource may take over a user that already exists")] = True
    pause: Annotated[
        bool, Meta(description="if true, the operator does not change the user, even if this resource is deleted")
    ] = False


class UserStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of the user at the last reconciliation."""

    cluster: Annotated[
        str | None, Meta(description="the Cluster of the user; spec.cluster can no longer change to another Cluster")
    ] = None
    username: Annotated[str, Meta(description="the user's name in Kafka")] | None = None
    secret: (
        Annotated[str, Meta(description="the Secret with the user's credentials and the settings for clients")] | None
    ) = None
    certificate: (
        Annotated[CertificateStatus, Meta(description="the certificate of a tls user, and when it expires")] | None
    ) = None
    password_id: (
        Annotated[
            str,
            Meta(description="an id that changes with the password in the Cluster, without revealing the password"),
        ]
        | None
    ) = None
    previous_password_until: (
        Annotated[str, Meta(description="the time until which the previous password works; missing if it does not")]
        | None
    ) = None
    revoked: (
        Annotated[
            str,
            Meta(
                description="the last value of the annotation barnabas.dev/revoke-password that was carried out; a new"
                " value ends the previous password at once"
            ),
        ]
        | None
    ) = None


class User(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A user of a Cluster."""

    kind: Literal["User"] = "User"
    spec: UserSpec
    status: UserStatus | None = None

    @property
    def username(self) -> str:
        """The user's name in Kafka."""
        return self.spec.username or self.metadata.name


_NAME: Final = "(has(self.spec.username) ? self.spec.username : self.metadata.name)"

USER: Final = Kind(
    resource=User,
    status=UserStatus,
    plural="users",
    short_name="bu",
    writer="admin",
    rights="users",
    thing="user",
    columns=(
        column("Cluster", "string", ".*.cluster"),  # Both spec and status may have this field.
        column("Authentication", "string", ".spec.authentication.type"),
        column("Secret", "string", ".status.secret"),
        column("Username", "string", ".status.username", wide=True),
        column("Previous password until", "string", ".status.previousPasswordUntil", wide=True),
    ),
    rules={
        User: [
            {
                "rule": f"self.spec.authentication.type != 'tls' || {_NAME}.matches('{CERTIFICATE_NAME}')",
                "messageExpression": (
                    f"(has(self.spec.username) ? 'spec.username is ' : 'metadata.name is ') + {_NAME}"
                    f' + "; allowed with TLS authentication: {CERTIFICATE_NAME_WORDS}"'
                ),
            },
            {
                "rule": (
                    "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                    " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
                ),
                "messageExpression": (
                    "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                    " + '; allowed: ' + self.status.cluster + ' (a User cannot move to another Cluster)'"
                    " + (has(oldSelf.spec.cluster) ? '' : ', or no value')"
                ),
            },
        ],
        UserSpec: [fixed("username")],
        UserAuthentication: [
            {
                "rule": "!has(self.password) || self.type.startsWith('scram-')",
                "messageExpression": (
                    "'spec.authentication.password is set, but spec.authentication.type is ' + self.type"
                    " + '; remove the password, or set the type to scram-sha-512'"
                ),
            },
        ],
        AclResource: [
            {
                "rule": "(self.type == 'cluster') != has(self.name)",
                "messageExpression": (
                    "has(self.name) ? 'name is ' + self.name + ', but a resource of type cluster has "
                    "no name; remove the"
                    " field' : 'name is missing, but a resource of type ' + self.type + ' needs a "
                    "name; allowed: a name,"
                    " or *'"
                ),
            },
            {
                "rule": f"self.type != 'topic' || !has(self.name) || !self.name.startsWith('{INTERNAL}')",
                "messageExpression": (
                    f"'name is ' + self.name + '; allowed: names that do not begin with {INTERNAL},"
                    " because those topics belong to the brokers'"
                ),
            },
        ],
        UserQuotas: [
            {
                "rule": "!has(self.controllerMutationRate) || self.controllerMutationRate > 0.0",
                "message": "spec.quotas.controllerMutationRate is 0 or less; allowed: more than 0",
            },
        ],
    },
    name_field="username",
    is_in_files=True,
)
