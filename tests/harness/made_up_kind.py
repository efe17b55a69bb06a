"""A kind of resource that exists in tests only: `made_up` is a fixture, for a conftest.py."""

from typing import Annotated, Final, Literal

import pytest
from msgspec import Meta, Struct

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import Kind, Resource, Scaled, Status, column, fixed

SOURCE_LENGTH_MAX: Final = 20


class MirrorSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a mirror."""

    cluster: Annotated[str | None, Meta(description="the Cluster's name")] = None
    source: Annotated[str, Meta(max_length=SOURCE_LENGTH_MAX, description="what is mirrored")]
    width: Annotated[int, Meta(ge=1, le=9, description="how many at a time")] = 2
    deletion_policy: Annotated[Literal["Retain", "Protect"], Meta(description="whether it may go")] = "Retain"


class MirrorStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state in which the mirror was found."""

    width: Annotated[int, Meta(description="how many there are")] | None = None


class Mirror(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A mirror of something else."""

    kind: Literal["Mirror"] = "Mirror"
    spec: MirrorSpec
    status: MirrorStatus | None = None


MIRROR: Final = Kind(
    resource=Mirror,
    status=MirrorStatus,
    plural="mirrors",
    short_name="bi",
    writer="edit",
    rights="mirrors",
    thing="mirror",
    columns=(column("Width", "integer", ".status.width"),),
    rules={MirrorSpec: [fixed("source")]},
    scaled=Scaled(("width",), ("width",)),
    name_field="source",
    folded=str.casefold,
)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Put the kind into the table of kinds for the time of the test."""
    monkeypatch.setitem(KINDS, MIRROR.name, MIRROR)
    return MIRROR
