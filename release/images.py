"""The images of a release, each for its architectures, built by the Dockerfile without Docker (root, on Debian)."""

import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from local_kubernetes.images import Base, Recipe, build, connector, root, spark, tools
from release.archive import read
from release.bom import describes
from release.elf import HEADER_BYTES, machine_of
from release.layout import Layout

ARCHITECTURES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("amd64", "arm64"),
    "operator": ("amd64", "arm64"),
    "jobs": ("amd64",),
}
"""Of each target of the Dockerfile."""


def built(
    stage: Path, folder: Path, targets: tuple[str, ...], labels: Mapping[str, str]
) -> dict[str, dict[str, Layout]]:
    """Build these targets of the sources in `stage` into `folder`; returns the layouts of each by architecture."""
    layouts: dict[str, dict[str, Layout]] = {target: {} for target in targets}
    for architecture in ("amd64", "arm64"):
        for bases, together in _builds(architecture, targets):
            places = {target: folder / f"{target}-{architecture}" for target in together}
            wanted = [(Recipe(f"localhost/{target}", target), f"oci:{place}:it") for target, place in places.items()]
            build(bases, wanted, architecture, stage, labels)
            for target, place in places.items():
                layouts[target][architecture] = read(place)
    return layouts


def _builds(architecture: str, targets: tuple[str, ...]) -> list[tuple[list[Base], list[str]]]:
    """Return the targets that have bases in common, with these bases."""
    wanted = [target for target in targets if architecture in ARCHITECTURES[target]]
    serving = [target for target in wanted if target != "jobs"]
    builds = [([tools(), root(architecture)], serving)] if serving else []
    return [*builds, ([tools(), spark(), connector()], ["jobs"])] if "jobs" in wanted else builds


class Files(NamedTuple):
    """What the files of an image come to."""

    describing: Mapping[str, bytes]
    """Those that describe its packages."""
    size: int
    """The bytes that all have on a node."""
    machines: frozenset[str]
    """The architectures of its programs and libraries."""


def files_of(image: Layout) -> Files:
    """Read the layers of an image."""
    describing, size, machines = {}, 0, set()
    for layer in layers(image):
        with tarfile.open(layer, "r|*") as tar:
            for member in tar:
                size += member.size
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if describes(member.name):
                    describing[member.name] = content.read()
                elif machine := machine_of(content.read(HEADER_BYTES)):
                    machines.add(machine)
    return Files(describing, size, frozenset(machines))


def layers(image: Layout) -> Iterator[Path]:
    """The archives of the layers of an image that buildah wrote, the lowest first."""
    manifest = image.blobs[image.root["digest"]]
    assert isinstance(manifest, Path), "buildah writes blobs into files"
    for layer in json.loads(manifest.read_bytes())["layers"]:
        blob = image.blobs[layer["digest"]]
        assert isinstance(blob, Path), "buildah writes blobs into files"
        yield blob
