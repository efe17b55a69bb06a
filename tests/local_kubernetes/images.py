"""Container images without a registry and without Docker; a node imports their archives before a pod names them.

`python -m local_kubernetes.images` builds all. `buildah` runs the project's own Dockerfile. Its first stages are made
here, each once: `root` and `java-root` by the Dockerfile's own script, and `tools`, which is Python on Debian, of
Debian's packages. `spark` is built once for each version of Spark. The archives are in the user's cache, one for each
state of the sources.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from harness.kept_builds import cache, locked
from local_kubernetes.binaries import CannotStart, programs, require
from local_kubernetes.node import PAUSE_IMAGE

ROOT: Final = Path(__file__).resolve().parents[2]
BASE_IMAGE: Final = "docker.io/library/python:3.11-slim-bookworm"
# As the image of that name has: libstdc++6 comes with apt there.
BASE_PACKAGES: Final = (
    "binutils-multiarch",
    "ca-certificates",
    "libstdc++6",
    "netbase",
    "passwd",
    "python3",
    "python3-venv",
    "tzdata",
)
# As slim images leave out documentation; licences stay.
BASE_PATHS: Final = (
    "exclude=/usr/share/man/*",
    "exclude=/usr/share/locale/*",
    "exclude=/usr/share/doc/*",
    "include=/usr/share/doc/*/copyright",
)
# A venv, so that pip puts packages where Python's own images do and not where Debian does.
BASE_HOOKS: Final = (
    'chroot "$1" python3 -m venv /usr/local',
    'rm -rf "$1"/var/lib/apt/* "$1"/var/cache/* "$1"/var/log/*',
)
DOCKERFILE: Final = ROOT / "Dockerfile"
ROOT_SCRIPT: Final = ROOT / "images" / "root.sh"
BUILD_SCRIPT: Final = ROOT / "images" / "build.sh"
INSTALL_SCRIPT: Final = "images/install.sh"
ABOUT: Final = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
IMAGES: Final = {"barnabas-broker": "broker", "barnabas-operator": "operator", "barnabas-jobs": "jobs"}
"""The images by name, each with its target in the Dockerfile."""
JOBS: Final = "barnabas-jobs"
SERVING: Final = tuple(name for name in IMAGES if name != JOBS)
"""The images that every cluster needs. That of the jobs is ten times as large, and only for clusters that run jobs."""
# What goes into a target besides the Dockerfile.
CONTEXT: Final[Mapping[str, Sequence[str]]] = {
    "": (),
    "broker": (*ABOUT, INSTALL_SCRIPT, "requirements/broker.txt", "broker/src"),
    "operator": (*ABOUT, INSTALL_SCRIPT, "requirements/operator.txt", "broker/src", "operator/src"),
    "jobs": (
        *ABOUT,
        "images",
        "requirements/jobs.txt",
        "broker/src/barnabas",
        "broker/src/barnabas_core",
        "operator/src/barnabas_registry",
        "spark-on-k8s/src",
    ),
    # Half a gigabyte: only what changes it.
    "spark": ("images/prepare_spark.py", "requirements/spark.txt"),
    "connector": (
        "spark-on-k8s/src/barnabas_jobs/app/connector.py",
        "spark-on-k8s/src/barnabas_jobs/planning/errors.py",
    ),
}
STAGES: Final = {"spark": ("packages", "spark-packages", "spark"), "connector": ("fetched", "connector")}
"""The stages of the Dockerfile that belong to images which are kept."""
TAG: Final = "dev"
# That of the jobs, and Spark, are 0.8 GB each.
ARCHIVES_KEPT: Final[Mapping[str, int]] = {JOBS: 3, "spark": 2}
ARCHIVES_KEPT_ELSE: Final = 6
BUILD_SECONDS_MAX: Final = 1800
# Only while an image is built: how this machine reaches the package index, and whom it trusts.
TRUST: Final = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf"))
IN_MEMORY: Final = 'mount -t tmpfs -o mode=755 tmpfs "$TMPDIR"; exec "$@"'
MAKE_ROOT: Final = """
mount -t tmpfs -o mode=755 tmpfs "$TMPDIR"
written="${!#}"
"$1" "$TMPDIR/root" "${@:2:$#-2}"
tar --create --file="$written" --directory="$TMPDIR/root" .
"""


def reference(name: str) -> str:
    """Return the name that pods use for one of IMAGES."""
    return f"docker.io/library/{name}:{TAG}"


def pause_archive() -> Path:
    """Return the image of the process that holds a pod's namespaces: one static program."""
    program = programs() / "pause"
    archive = program.with_name("pause.tar")
    if not archive.exists():
        written = archive.with_suffix(f".{os.getpid()}")
        write_archive(written, PAUSE_IMAGE, {"pause": program.read_bytes()}, "/pause")
        written.rename(archive)
    return archive


class Base(NamedTuple):
    """An image in place of a stage of the Dockerfile: its name, and a tar of its files or an archive."""

    stage: str
    image: str
    file: Path


class Recipe(NamedTuple):
    """An image, and its target in the Dockerfile; without a target it is the base itself."""

    image: str
    target: str


def base_archive() -> Path:
    """Return an image of Python on Debian, for pods of tests. Raises CannotStart."""
    _check_machine()
    return _archives({"python": Recipe(BASE_IMAGE, "")}, [tools()])["python"]


def project_archive(name: str) -> Path:
    """Return one of IMAGES, built again if the sources have changed. Raises CannotStart."""
    _check_machine()
    if name == JOBS:
        return _archives({JOBS: Recipe(reference(JOBS), IMAGES[JOBS])}, [tools(), spark(), connector()])[JOBS]
    # They have their sources in common: when one is to be built anew, so are all, and all on one base.
    return _archives({each: Recipe(reference(each), IMAGES[each]) for each in SERVING}, [tools(), root()])[name]


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise CannotStart("images are built as root; `make e2e E2E=kind` builds them with Docker")
    require("buildah", "mmdebstrap", "mount", "unshare")


def _archives(recipes: Mapping[str, Recipe], bases: Sequence[Base]) -> dict[str, Path]:
    archives = _archives_of(recipes, bases)
    with locked("images"):
        missing = [name for name, archive in archives.items() if not archive.exists()]
        if missing:
            written = {name: archives[name].with_suffix(f".{os.getpid()}") for name in missing}
            build(bases, [(recipes[name], _archive(recipes[name], written[name])) for name in missing])
            if _archives_of(recipes, bases) != archives:
                for path in written.values():
                    path.unlink()
                raise CannotStart("the sources changed while images were built of them; try again")
            for name in missing:
                written[name].rename(archives[name])
                _forget_old(name)
    return archives


def _archives_of(recipes: Mapping[str, Recipe], bases: Sequence[Base]) -> dict[str, Path]:
    return {name: cache() / f"{name}-{_digest(bases, recipe.target)}.image" for name, recipe in recipes.items()}


def _archive(recipe: Recipe, path: Path) -> str:
    return f"docker-archive:{path}:{recipe.image}"


def _forget_old(name: str) -> None:
    """Delete old images, except those that other checkouts may be using."""
    known = sorted(cache().glob(f"{name}-*.image"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in known[ARCHIVES_KEPT.get(name, ARCHIVES_KEPT_ELSE) :]:
        path.unlink()


def build(
    bases: Sequence[Base],
    wanted: Sequence[tuple[Recipe, str]],
    architecture: str = "amd64",
    context: Path = ROOT,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Build images of the Dockerfile in `context`, and push each to its destination. Raises CannotStart."""
    triples = [(*recipe, destination) for recipe, destination in wanted]
    with tempfile.TemporaryDirectory() as storage:
        values = {
            "ARCHITECTURE": architecture,
            "BASES": " ".join(f"{base.image}={base.file}" for base in bases),
            "BUILDAH_ISOLATION": "chroot",
            "LABELS": " ".join(f"--label={name}={value}" for name, value in labels.items()),
            "STAGES": " ".join(f"--build-context={base.stage}=container-image://{base.image}" for base in bases),
            "STORAGE": storage,
            "TRUST": " ".join(f"--volume={path}:{path}:ro" for path in TRUST if path.exists()),
        }
        arguments = [argument for triple in triples for argument in triple]
        _run("unshare", "--mount", str(BUILD_SCRIPT), *arguments, environment=values, folder=context)


def tools() -> Base:
    """Make Python on Debian, by which images are built."""
    options = [f"--dpkgopt=path-{rule}" for rule in BASE_PATHS]
    hooks = [f"--customize-hook={hook}" for hook in BASE_HOOKS]
    what = ["--variant=essential", "--format=tar", f"--include={','.join(BASE_PACKAGES)}"]
    recipe = repr((BASE_PACKAGES, BASE_PATHS, BASE_HOOKS))
    made = _made("python-on-debian", recipe, IN_MEMORY, "mmdebstrap", "--quiet", *what, *options, *hooks, "bookworm")
    return Base("tools", BASE_IMAGE, made)


def root(architecture: str = "amd64", *more: str) -> Base:
    """Make the files below all images; more are those of Java."""
    stage = "-".join((*more, "root"))
    script = ROOT_SCRIPT.read_text(encoding="utf-8")
    made = _made(f"{stage}-{architecture}", script, MAKE_ROOT, str(ROOT_SCRIPT), architecture, *more)
    return Base(stage, f"localhost/{stage}", made)


def spark() -> Base:
    """Make what the image of the jobs has below our sources."""
    return _stage("spark", [tools(), root("amd64", "java")])


def connector() -> Base:
    """Make the image of Spark's jars for Kafka."""
    return _stage("connector", [tools(), spark()])


def _stage(name: str, bases: Sequence[Base]) -> Base:
    """Make a stage that takes long and seldom changes."""
    image = f"localhost/{name}"
    return Base(name, image, _archives({name: Recipe(image, name)}, bases)[name])


def _made(name: str, recipe: str, script: str, *arguments: str) -> Path:
    """Make a tar once for each recipe, by a script that gets its path as last argument."""
    made = cache() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    with locked(name):
        if not made.exists():
            written = made.with_suffix(f".{os.getpid()}")
            with tempfile.TemporaryDirectory() as storage:
                in_memory = ["unshare", "--mount", "bash", "-euc", script, "make", *arguments, str(written)]
                _run(*in_memory, environment={"TMPDIR": storage})
            written.rename(made)
    return made


def _digest(bases: Sequence[Base], target: str) -> str:
    """Return a digest of everything that goes into an image."""
    digest = hashlib.sha256((" ".join(base.file.name for base in bases) + target).encode() + BUILD_SCRIPT.read_bytes())
    digest.update(_dockerfile(target).encode())
    for path in _sources(target):
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _dockerfile(target: str) -> str:
    """Return the part of the Dockerfile about a target."""
    text = DOCKERFILE.read_text(encoding="utf-8") if target else ""
    if target not in STAGES:
        return text
    stages = {stage.split()[2]: stage for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]}
    return "".join(stages[name] for name in STAGES[target])


def _sources(target: str) -> Iterator[Path]:
    for name in CONTEXT[target]:
        found = (ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name]
        yield from sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _run(*command: str, environment: dict[str, str] | None = None, folder: Path = ROOT) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise CannotStart(f"{command[0]} failed: {done.stdout[-1500:]}{done.stderr[-1500:]}")


def write_archive(archive: Path, image: str, content: Mapping[str, bytes], entrypoint: str) -> None:
    """Write an image of these files alone as `docker save` does; their paths have no leading slash."""
    layer = _tar(content)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [entrypoint]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    texts = {path: json.dumps(value).encode() for path, value in files.items()}
    archive.write_bytes(_tar({"layer.tar": layer, **texts}))


def _tar(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def main() -> None:
    began_s = time.monotonic()
    makes: list[Callable[[], Path]] = [
        pause_archive,
        base_archive,
        *(partial(project_archive, name) for name in IMAGES),
    ]
    for make in makes:
        archive = make()
        megabytes = archive.stat().st_size / 1e6
        print(f"{time.monotonic() - began_s:6.1f} s  {archive}  {megabytes:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
