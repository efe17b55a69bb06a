"""The base classes of all resources and their statuses."""

from typing import Any

from msgspec import Struct

from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import (
    API_VERSION,
    ApiVersion,
    Condition,
    Conditions,
    ObjectMeta,
    ObservedGeneration,
)


class Status(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of a resource at the last reconciliation."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration | None = None


class Resource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A resource of any kind. Subclasses define `kind`, `spec` and `status`."""

    api_version: ApiVersion = API_VERSION
    kind: str
    metadata: ObjectMeta
    spec: Any
    status: Status | None = None

    @classmethod
    def declared_spec(cls, body: Json) -> Json:
        """Return the spec of an object of the API server, with the defaults that the CRD cannot contain."""
        spec: Json = body.get("spec", {})
        return spec

    @property
    def owner_reference(self) -> Json:
        """The entry in `metadata.ownerReferences` of the objects that the resource owns."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid or "",
            "controller": True,
            "blockOwnerDeletion": False,
        }

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions in the status; empty before the first status."""
        return self.status.conditions if self.status is not None else ()

    @property
    def is_paused(self) -> bool:
        """True if the resource must not be reconciled. A kind without `spec.pause` is never paused."""
        return bool(getattr(self.spec, "pause", False))
