"""The conversion of Strimzi's `storage` to `spec.storage` of a Cluster."""

from collections.abc import Callable, Mapping
from typing import Final

from barnabas_operator.planning.strimzi.section import Section, given
from barnabas_operator.resources.json_types import JsonObject

NO_LIMIT: Final = "10Gi"


def storage_of(section: Section) -> JsonObject | None:
    """Return `spec.storage`, or None if the manifest has no storage or an invalid one."""
    if "type" not in section and not section.is_empty:
        section.need("type", str, " or ".join(_TYPES))
    volumes = section.choice("type", _TYPES)
    made = volumes(section) if volumes is not None else []
    return {"volumes": made} if made else None


def _of_jbod(section: Section) -> list[JsonObject]:
    made = []
    for volume in section.sections("volumes"):
        number = volume.need("id", int, "the id of the volume")
        read = volume.choice("type", _VOLUMES)
        if read is not None:
            made.append({"id": number, **read(volume)})
    return made


def _of_one_claim(section: Section) -> list[JsonObject]:
    section.skip("id")
    return [{"id": 0, **_of_claim(section)}]


def _of_one_folder(section: Section) -> list[JsonObject]:
    section.skip("id")
    return [{"id": 0, **_of_folder(section)}]


def _of_claim(volume: Section) -> JsonObject:
    volume.skip("kraftMetadata")  # Barnabas has no KRaft metadata log.
    size, storage_class = volume.need("size", str, "a size such as 10Gi"), volume.take("class", str)
    return given(size=size, storageClass=storage_class, deleteClaim=volume.take("deleteClaim", bool))


def _of_folder(volume: Section) -> JsonObject:
    """Return a volume with a claim instead of an ephemeral volume, and add a note.

    The size of the claim is the size limit of the ephemeral volume.
    """
    volume.skip("kraftMetadata")
    size = volume.take("sizeLimit", str) or NO_LIMIT
    why = (
        f"becomes a claim of {size}, because brokers keep records only on claims; the claim is deleted with the Cluster"
    )
    volume.note("type", f"is ephemeral, and {why}")
    return {"size": size, "deleteClaim": True}


_VOLUMES: Final[Mapping[str, Callable[[Section], JsonObject]]] = {
    "persistent-claim": _of_claim,
    "ephemeral": _of_folder,
}
_TYPES: Final[Mapping[str, Callable[[Section], list[JsonObject]]]] = {
    "jbod": _of_jbod,
    "persistent-claim": _of_one_claim,
    "ephemeral": _of_one_folder,
}
