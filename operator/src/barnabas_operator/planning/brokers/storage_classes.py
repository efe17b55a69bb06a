"""The StorageClasses of the Kubernetes cluster, and what their volumes support."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.brokers.broker_claims import BrokerClaim
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, Volume
from barnabas_operator.resources.json_types import Json

DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
LATE: Final = "WaitForFirstConsumer"


class StorageClass(NamedTuple):
    """A StorageClass.

    `is_late` is True if claims are bound only when a pod uses them. `can_grow` is True if volumes can be expanded.
    """

    is_late: bool
    can_grow: bool


class StorageClasses(NamedTuple):
    """The StorageClasses by name; `default` is the default class, or "" if there is none."""

    by_name: Mapping[str, StorageClass]
    default: str = ""

    def of(self, volume: Volume) -> str:
        """Return the name of the storage class for the claims of a volume, or "" if the claims get no class."""
        return self.default if volume.storage_class is None else volume.storage_class

    def gives_late(self, volume: Volume) -> bool:
        """True if the claims of a volume are bound only when a pod uses them."""
        found = self.by_name.get(self.of(volume))
        return found is not None and found.is_late

    def lacks(self, volume: Volume) -> bool:
        """True if a volume names a storage class that does not exist."""
        return bool(volume.storage_class) and volume.storage_class not in self.by_name

    def with_names(self, names: Iterable[str]) -> "StorageClasses":
        """Return a copy that also contains a class for each new name in `names`.

        An added class binds claims at once and cannot expand volumes.
        """
        return self._replace(by_name={**dict.fromkeys(names, StorageClass(False, False)), **self.by_name})

    @property
    def allowed(self) -> str:
        """The allowed values of `storageClass`, for a message."""
        return ", ".join(sorted(self.by_name)) or "no value, because Kubernetes has no StorageClass"


def storage_classes_of(found: Iterable[Json]) -> StorageClasses:
    """Return the StorageClasses; the newest of several default classes is the default, as in Kubernetes."""
    listed = sorted(found, key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"]))
    defaults = [each["metadata"]["name"] for each in listed if _annotations(each).get(DEFAULT) == "true"]
    return StorageClasses({each["metadata"]["name"]: _class(each) for each in listed}, defaults[-1] if defaults else "")


def _class(found: Json) -> StorageClass:
    return StorageClass(found.get("volumeBindingMode") == LATE, bool(found.get("allowVolumeExpansion", False)))


def _annotations(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def new_disks(cluster: Cluster, claims: Iterable[BrokerClaim]) -> Mapping[int, Volume]:
    """Return, by index in spec.storage.volumes, each volume that names a storage class and has no bound claim."""
    bound = {claim.volume_id for claim in claims if claim.is_bound}
    volumes = enumerate(cluster.spec.storage.volumes)
    return {index: volume for index, volume in volumes if volume.storage_class and volume.id not in bound}


def refuse_missing_class(cluster: Cluster, claims: Iterable[BrokerClaim], classes: StorageClasses) -> Refusal | None:
    """Refuse a new volume whose storage class does not exist."""
    for index, volume in new_disks(cluster, claims).items():
        if classes.lacks(volume):
            field = f"spec.storage.volumes[{index}].storageClass is {volume.storage_class}"
            return Refusal(NOT_SUPPORTED, f"{field}, but there is no such StorageClass; allowed: {classes.allowed}")
    return None
