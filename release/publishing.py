"""Which archives of a release go where in a registry, and by which commands. Pure."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from release.signing import tag_of
from release.version import Version

COPY: Final = ("skopeo", "copy", "--quiet", "--all", "--preserve-digests")


class Artifact(NamedTuple):
    """An image, the chart, or the signature of one of them: its name in a registry, and the archive in `dist/`."""

    repository: str
    tag: str
    archive: str

    @property
    def name(self) -> str:
        """As clients of a registry name it."""
        return f"{self.repository}:{self.tag}"


def image(registry: str, target: str, version: Version) -> Artifact:
    """Return the place of an image."""
    name = f"barnabas-{target}"
    return Artifact(f"{registry}/{name}", version.semantic, f"{name}-{version.semantic}.oci.tar")


def chart(registry: str, version: Version) -> Artifact:
    """Return the place of the chart, apart from images: both may be called barnabas."""
    return Artifact(f"{registry}/charts/barnabas", version.semantic, f"barnabas-chart-{version.semantic}.oci.tar")


def signature(signed: Artifact, digest: str) -> Artifact:
    """Return the place of a signature, where cosign looks for it."""
    return Artifact(signed.repository, tag_of(digest), signed.archive.replace(".oci.tar", ".sig.oci.tar"))


def pushes(folder: str, artifacts: Sequence[Artifact]) -> Iterator[list[str]]:
    """Return the commands that push archives; what they push has the digest that was signed."""
    for each in artifacts:
        plain = ["--dest-tls-verify=false"] if _on_this_machine(each.repository.partition("/")[0]) else []
        source = f"oci-archive:{folder}/{each.archive}:{each.tag}"
        yield [*COPY, *plain, source, f"docker://{each.name}"]


def _on_this_machine(host: str) -> bool:
    """True if clients of registries speak plain HTTP to it, as Docker does."""
    name = host.partition(":")[0]
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
