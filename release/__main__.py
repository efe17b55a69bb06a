"""Makes a release of the commit that is checked out, as root on Debian: `python -m release dist`.

Only what is committed goes into it: the sources are those of `git archive`, with the version in pyproject.toml.
It needs what `make e2e-tools` installs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from ruamel.yaml import YAML

from bench.figures import RESULT, StaleFigures, check_age
from bench.results import load
from local_kubernetes.binaries import CannotStart, require
from local_kubernetes.helm import helm
from release import archive, bom, checksums, images, plugin, publishing, signing
from release.chart import chart_layout, with_images
from release.errors import ReleaseError
from release.layout import Layout, for_architectures
from release.notes import notes
from release.publishing import Artifact
from release.version import Version, declared, stamped, version_of

ROOT: Final = Path(__file__).resolve().parents[1]
UNPUBLISHED: Final = "docker.io/library"
"""The registry in the names of images that are only in `dist/`, as of those that a checkout builds."""


class Release(NamedTuple):
    """What all steps work with."""

    version: Version
    revision: str
    made: datetime
    registry: str
    key: EllipticCurvePrivateKey | None
    stage: Path
    """The committed sources."""
    dist: Path


def main() -> None:
    """Make it, and publish it if asked; exit code 2 if it cannot be made."""
    arguments = _arguments()
    try:
        require("buildah", "git", "skopeo")
        key = _key()
        if arguments.publish and key is None:
            raise ReleaseError("PUBLISH needs SIGN_KEY, a file with a private key: nothing is published unsigned")
        with tempfile.TemporaryDirectory(prefix="barnabas-release-") as folder:
            release = _release(Path(folder), arguments, key)
            artifacts = _make(release, tuple(arguments.images), Path(folder))
        if arguments.publish:
            for command in publishing.pushes(str(release.dist), artifacts):
                _run(*command)
    except (CannotStart, ReleaseError) as error:
        print(f"release: {error}", file=sys.stderr)
        sys.exit(2)
    _say(release, artifacts, bool(arguments.publish))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("dist", type=Path, help="an empty folder, or one that is to be made")
    parser.add_argument("--publish", metavar="REGISTRY", help="push images, chart and signatures: HOST/PATH")
    parser.add_argument("--images", nargs="*", default=list(images.ARCHITECTURES), choices=list(images.ARCHITECTURES))
    return parser.parse_args()


def _key() -> EllipticCurvePrivateKey | None:
    name = os.environ.get("SIGN_KEY")
    if not name:
        return None
    if not Path(name).is_file():
        raise ReleaseError(f"SIGN_KEY={name} is no file")
    return signing.key_of(Path(name).read_bytes(), os.environ.get("SIGN_PASSWORD"))


def _release(folder: Path, arguments: argparse.Namespace, key: EllipticCurvePrivateKey | None) -> Release:
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError(
            "some files differ from the commit: commit or stash them, for only what is committed is released"
        )
    dist = arguments.dist.resolve()
    if dist.exists() and any(dist.iterdir()):
        raise ReleaseError(f"{dist} is not empty: `make clean` removes what an earlier run made")
    dist.mkdir(exist_ok=True)
    stage = folder / "stage"
    stage.mkdir()
    _run("bash", "-c", f"git archive HEAD | tar --extract --directory='{stage}'")
    pyproject = (stage / "pyproject.toml").read_text(encoding="utf-8")
    commits = int(_git("rev-list", "--count", "HEAD"))
    try:
        check_age(load(RESULT), commits)
    except StaleFigures as stale:
        raise ReleaseError(str(stale)) from None
    version = version_of(declared(pyproject), _git("tag", "--points-at", "HEAD").split(), commits)
    (stage / "pyproject.toml").write_text(stamped(pyproject, version), encoding="utf-8")
    made = datetime.fromtimestamp(int(_git("log", "-1", "--format=%ct")), UTC)
    registry = arguments.publish or UNPUBLISHED
    return Release(version, _git("rev-parse", "HEAD"), made, registry, key, stage, dist)


def _make(release: Release, targets: tuple[str, ...], folder: Path) -> list[Artifact]:
    """Fill `dist/`; returns what belongs into a registry."""
    changelog = (release.stage / "CHANGELOG.md").read_text(encoding="utf-8")
    (release.dist / "release-notes.md").write_text(notes(changelog, release.version), encoding="utf-8")
    _run(_tool("uv"), "build", "--quiet", f"--out-dir={release.dist}", str(release.stage))
    (release.dist / ".gitignore").unlink(missing_ok=True)  # Of uv.
    packed = plugin.archive(release.stage, int(release.made.timestamp()))
    (release.dist / plugin.ARCHIVE).write_bytes(packed)
    described = plugin.manifest(release.version, sha256(packed).hexdigest())
    (release.dist / plugin.MANIFEST).write_text(described, encoding="utf-8")
    artifacts = [*_images(release, targets, folder), *_chart(release)]
    digests = {path.name: checksums.sha256_of(path) for path in release.dist.iterdir()}
    sums = checksums.lines(digests).encode()
    (release.dist / checksums.NAME).write_bytes(sums)
    if release.key is not None:
        (release.dist / f"{checksums.NAME}.sig").write_text(signing.signature(release.key, sums), encoding="ascii")
        (release.dist / "cosign.pub").write_bytes(signing.public_key(release.key))
    return artifacts


def _images(release: Release, targets: tuple[str, ...], folder: Path) -> list[Artifact]:
    about = {"version": release.version.semantic, "revision": release.revision, "licenses": "Apache-2.0"}
    labels = {f"org.opencontainers.image.{name}": value for name, value in about.items()}
    artifacts = []
    for target, layouts in images.built(release.stage, folder, targets, labels).items():
        place = publishing.image(release.registry, target, release.version)
        for architecture, layout in layouts.items():
            files = images.files_of(layout)
            if wrong := files.machines - {architecture}:
                raise ReleaseError(f"{place.name} for {architecture} has programs for {', '.join(sorted(wrong))}")
            print(f"{place.name} {architecture}: {files.size / 1e6:.1f} MB", flush=True)
            bill = bom.bill(
                f"barnabas-{target}", release.version.semantic, bom.packages(files.describing), release.made
            )
            name = f"barnabas-{target}-{release.version.semantic}-{architecture}.cdx.json"
            (release.dist / name).write_text(bill, encoding="utf-8")
        artifacts += _stored(release, place, for_architectures(layouts))
    return artifacts


def _chart(release: Release) -> list[Artifact]:
    chart = release.stage / "helm" / "barnabas"
    values = chart / "values.yaml"
    said = with_images(values.read_text(encoding="utf-8"), release.registry, release.version.semantic)
    values.write_text(said, encoding="utf-8")
    number = release.version.semantic
    _run(
        str(helm()),
        "package",
        str(chart),
        f"--version={number}",
        f"--app-version={number}",
        f"--destination={release.dist}",
    )
    metadata = YAML(typ="safe").load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    packaged = (release.dist / f"barnabas-{number}.tgz").read_bytes()
    layout = chart_layout({**metadata, "version": number, "appVersion": number}, packaged)
    return _stored(release, publishing.chart(release.registry, release.version), layout)


def _stored(release: Release, place: Artifact, layout: Layout) -> list[Artifact]:
    """Write the archive of an artifact and of its signature."""
    archive.write(layout, place.name, release.dist / place.archive)
    if release.key is None:
        return [place]
    digest = layout.root["digest"]
    signed = publishing.signature(place, digest)
    archive.write(
        signing.signature_layout(release.key, place.repository, digest), signed.name, release.dist / signed.archive
    )
    return [place, signed]


def _say(release: Release, artifacts: Sequence[Artifact], published: bool) -> None:
    for path in sorted(release.dist.iterdir()):
        print(f"{path.stat().st_size / 1e6:9.2f} MB  {path.name}")
    if release.key is None:
        print("Nothing is signed: SIGN_KEY names no key.")
    for each in artifacts if published else ():
        print(f"published {each.name}")


def _tool(name: str) -> str:
    """Return the path of a program that comes with a package of this Python, or is on the machine."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        raise ReleaseError(f"{name} is not on the machine: `make venv` installs it")
    return found


def _git(*arguments: str) -> str:
    return _run("git", *arguments).strip()


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} failed: {done.stderr[-1500:]}")
    return done.stdout


if __name__ == "__main__":
    main()
