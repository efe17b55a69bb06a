"""The bill of materials of an image in CycloneDX: the packages of Debian and Python that the image describes. Pure."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from email import message_from_bytes
from typing import Final, NamedTuple

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

DEBIAN: Final = "var/lib/dpkg/status.d/"
PYTHON: Final = ".dist-info/METADATA"


class Package(NamedTuple):
    """A package that is in an image."""

    kind: str
    """As in a package URL: deb or pypi."""
    name: str
    version: str
    architecture: str = ""

    @property
    def url(self) -> PackageURL:
        """Its package URL."""
        namespace = "debian" if self.kind == "deb" else None
        qualifiers = {"arch": self.architecture} if self.architecture else None
        return PackageURL(self.kind, namespace, self.name, self.version, qualifiers)


def describes(path: str) -> bool:
    """True if a file of an image describes a package."""
    return DEBIAN in path or path.endswith(PYTHON)


def packages(described: Mapping[str, bytes]) -> list[Package]:
    """Return the packages that these files describe, in the order of their names."""
    found = set()
    for path, content in described.items():
        fields = message_from_bytes(content)
        if DEBIAN in path:
            found.add(Package("deb", fields["Package"], fields["Version"], fields["Architecture"]))
        else:
            found.add(Package("pypi", fields["Name"], fields["Version"]))
    return sorted(found)


def bill(image: str, version: str, content: Iterable[Package], made: datetime) -> str:
    """Return the bill of an image as JSON; the same content gives the same text."""
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{image}:{version}"))
    bom.metadata.timestamp = made
    root = Component(name=image, version=version, type=ComponentType.CONTAINER, bom_ref=image)
    bom.metadata.component = root
    parts = [Component(name=each.name, version=each.version, purl=each.url, bom_ref=str(each.url)) for each in content]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return text
