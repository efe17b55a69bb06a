"""The parts of a `Cluster` that say how its clients prove who they are, and what they may do; and its certificates."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

AuthenticationType = Literal["tls", "scram-sha-512", "plain"]
SUPER_USERS_MAX: Final = 64
UserName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$",
        description="letters, digits, dots, - and _, 64 at most",
    ),
]
"""A name that a certificate can have."""


class Authentication(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The proof that clients of a listener give of who they are."""

    type: Annotated[
        AuthenticationType,
        Meta(description="a certificate (tls), or a password (scram-sha-512, or plain); all but SCRAM need TLS"),
    ]


class Authorization(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The rights of clients, by ACLs. Every listener needs authentication."""

    type: Annotated[Literal["simple"], Meta(description="ACLs, as kafka-acls creates them")] = "simple"
    super_users: Annotated[
        tuple[UserName, ...],
        Meta(max_length=SUPER_USERS_MAX, description="users who may do everything, beside admin"),
    ] = ()
    allow_everyone_if_no_acl_found: Annotated[
        bool, Meta(description="true: everybody may do everything with a resource that has no ACL")
    ] = False


class CertificateAuthority(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """An authority that signs certificates."""

    generate_certificate_authority: Annotated[
        bool, Meta(description="false: you provide the authority, in Secrets that you create and renew")
    ] = True


class CertificateStatus(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A certificate that brokers or their clients show, or trust, and when it ends."""

    name: Annotated[str, Meta(description="the Secret that holds it")]
    not_after: Annotated[str, Meta(description="when it expires (RFC 3339)")]
    renewal_time: (
        Annotated[str, Meta(description="when the operator renews it; left out, the operator does not")] | None
    ) = None
