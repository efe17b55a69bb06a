"""The fields of a Cluster for authentication, authorization and certificates."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

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
MEANINGS: Final = {"*": "all users", "ANONYMOUS": "all clients that have not authenticated"}
"""The names of principals that are not one user, each with those that it stands for in ACLs and super.users."""


def not_one_user(name: str) -> str:
    """Return what is allowed in place of a name in MEANINGS."""
    return f"allowed: the name of one user, because in Kafka User:{name} stands for {MEANINGS[name]}"


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
