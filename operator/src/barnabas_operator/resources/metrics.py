"""The field `spec.metrics` of a Cluster."""

from typing import Annotated

from msgspec import Meta, Struct

from barnabas_operator.resources.maintenance_run import SecretKeyRef


class Metrics(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The protection of `/metrics` in the pods of brokers and lag exporter, which then serve `/metrics` over TLS."""

    token_secret: Annotated[
        SecretKeyRef,
        Meta(
            description="the key of a Secret with the bearer token that `/metrics` asks for; a missing Secret"
            " keeps pods from starting"
        ),
    ]
