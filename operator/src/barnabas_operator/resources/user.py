"""The kind `User`: names and defaults as Strimzi's KafkaUser has them, where they fit."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_operator.resources.kind import Kind, column, fixed
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.resource import Resource, Status
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.topic import DeletionPolicy

USERNAME_LENGTH_MAX: Final = 253
ACLS_MAX: Final = 256
OPERATIONS_MAX: Final = 13
RESOURCE_NAME_MAX: Final = 249
CERTIFICATE_NAME: Final = r"^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$"
"""The names that a certificate can have: X.509 allows 64 characters (RFC 5280, ub-common-name)."""
CERTIFICATE_NAME_WORDS: Final = "1 to 64 letters, digits, '.', '_' and '-', with a letter or digit at both ends"
INTERNAL: Final = "__"
"""The beginning of the names of topics that belong to brokers."""

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
        description="the user's name in Kafka, if it is not metadata.name; never changes; for a tls user"
        f" {CERTIFICATE_NAME_WORDS}",
    ),
]


class PasswordSource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The place of a password that somebody else chose."""

    secret_key_ref: SecretKeyRef


class Password(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A password that is not made by the operator."""

    value_from: PasswordSource


class UserAuthentication(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The proof that clients of the user give of who they are."""

    type: Annotated[
        UserAuthenticationType,
        Meta(
            description="a password (scram-sha-512, scram-sha-256), a certificate (tls), or what others gave out"
            " (external): then the user has ACLs and quotas only, and no Secret"
        ),
    ]
    password: (
        Annotated[Password, Meta(description="only with scram; left out, a password of 32 characters is generated")]
        | None
    ) = None


class AclResource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The resources of Kafka that an ACL is about."""

    type: Annotated[AclResourceType, Meta(description="cluster is the whole Cluster")]
    name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=RESOURCE_NAME_MAX,
                description="its name, * for all, or how it begins (prefix); left out with the type cluster",
            ),
        ]
        | None
    ) = None
    pattern_type: Annotated[AclPatternType, Meta(description="literal: that name; prefix: all that begin with it")] = (
        "literal"
    )


class AclRule(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Operations that the user may do, or may not."""

    type: Annotated[AclType, Meta(description="Deny takes precedence over Allow")] = "allow"
    resource: AclResource
    host: Annotated[
        str,
        Meta(
            max_length=45,
            pattern=r"^(\*|[0-9a-fA-F:.]+)$",
            description="the IP address from which the user connects, * for any",
        ),
    ] = "*"
    operations: Annotated[
        tuple[AclOperation, ...],
        Meta(min_length=1, max_length=OPERATIONS_MAX, description="the operations, by Kafka's names"),
    ]


class UserAuthorization(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The user's rights. The Cluster needs spec.authorization for them."""

    type: Annotated[Literal["simple"], Meta(description="ACLs, as kafka-acls creates them")] = "simple"
    acls: Annotated[
        tuple[AclRule, ...],
        Meta(max_length=ACLS_MAX, description="all ACLs of the user; any others of the user are removed"),
    ] = ()


class UserQuotas(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The bounds of what clients of the user may ask of each broker; one that is left out does not count."""

    producer_byte_rate: (
        Annotated[int, Meta(ge=1, description="the bytes a second that the user's clients may write")] | None
    ) = None
    consumer_byte_rate: (
        Annotated[int, Meta(ge=1, description="the bytes a second that the user's clients may read")] | None
    ) = None
    request_percentage: (
        Annotated[int, Meta(ge=1, description="the percentage of a broker's event loop; 100 is all of it")] | None
    ) = None
    controller_mutation_rate: (
        Annotated[float, Meta(description="the partitions a second that the user may create and delete; more than 0")]
        | None
    ) = None


class UserSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The user as it shall be."""

    cluster: Annotated[str | None, Meta(description="the Cluster's name; may be left out where there is only one")] = (
        None
    )
    username: Username | None = None
    authentication: UserAuthentication
    authorization: (
        Annotated[
            UserAuthorization,
            Meta(
                description=(
                    "the rights of the user; left out, it has no ACLs, and those that others gave it are removed"
                )
            ),
        ]
        | None
    ) = None
    quotas: (
        Annotated[
            UserQuotas,
            Meta(
                description="the quotas of the user; left out, it has none, and those that others gave it are removed"
            ),
        ]
        | None
    ) = None
    deletion_policy: Annotated[
        DeletionPolicy,
        Meta(
            description="when this resource is deleted, Delete takes password, ACLs and quotas from the Cluster,"
            " Retain does not; Protect keeps both"
        ),
    ] = "Delete"
    adopt: Annotated[
        bool, Meta(description="true: takes over a user that existed before this resource; false: refuses to")
    ] = True
    pause: Annotated[bool, Meta(description="true: the user is left as it is, deletion included")] = False


class UserStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The user as it was found at the last reconciliation."""

    cluster: Annotated[str | None, Meta(description="the Cluster that has the user; never changes")] = None
    username: Annotated[str, Meta(description="the user's name in Kafka")] | None = None
    secret: Annotated[str, Meta(description="the Secret with all that a client needs")] | None = None
    certificate: Annotated[CertificateStatus, Meta(description="the expiry of a tls user's certificate")] | None = None
    password_id: (
        Annotated[
            str,
            Meta(
                description="changes whenever the password in the Cluster does; the password cannot be derived from it"
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
        column("Cluster", "string", ".*.cluster"),  # From spec or status; if both have it, they agree.
        column("Authentication", "string", ".spec.authentication.type"),
        column("Secret", "string", ".status.secret"),
        column("Username", "string", ".status.username", wide=True),
    ),
    rules={
        User: [
            {
                "rule": f"self.spec.authentication.type != 'tls' || {_NAME}.matches('{CERTIFICATE_NAME}')",
                "messageExpression": (
                    f"(has(self.spec.username) ? 'spec.username is ' : 'metadata.name is ') + {_NAME}"
                    f' + "; allowed with tls: {CERTIFICATE_NAME_WORDS}"'
                ),
            },
            {
                "rule": (
                    "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                    " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
                ),
                "messageExpression": (
                    "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                    " + '; allowed: ' + self.status.cluster + ', which has the user'"
                    " + (has(oldSelf.spec.cluster) ? '' : ', or leave it out')"
                ),
            },
        ],
        UserSpec: [fixed("username")],
        UserAuthentication: [
            {
                "rule": "!has(self.password) || self.type.startsWith('scram-')",
                "messageExpression": (
                    "'spec.authentication.password is given with the type ' + self.type"
                    " + '; allowed: leave it out, or the type scram-sha-512'"
                ),
            },
        ],
        AclResource: [
            {
                "rule": "(self.type == 'cluster') != has(self.name)",
                "messageExpression": (
                    "'name is ' + (has(self.name) ? self.name : 'missing') + ' with the type ' + self.type"
                    " + (has(self.name) ? '; allowed: leave it out' : '; allowed: a name, or *')"
                ),
            },
            {
                "rule": f"self.type != 'topic' || !has(self.name) || !self.name.startsWith('{INTERNAL}')",
                "messageExpression": (
                    f"'name is ' + self.name + '; allowed: names that do not begin with {INTERNAL},"
                    " for those topics belong to the brokers'"
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
