"""The field `spec.metrics` of a Cluster."""

from typing import Annotated

from msgspec import Meta, Struct

from barnabas_operator.resources.maintenance_run import SecretKeyRef


class Metrics(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings with which brokers and lag exporter serve `/metrics` over TLS, and only with a bearer token."""

    token_secret: Annotated[
        SecretKeyRef,
        Meta(
            description="the key of a Secret with the bearer token that `/metrics` asks for; a missing Secret"
            " keeps pods from starting"
        ),
    ]
