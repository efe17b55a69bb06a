"""Builds the programs of Kubernetes from `go/`, once for each state of its sources, into the user's cache.

`python -m local_kubernetes.binaries` builds them ahead and prints the folder. `go` brings every module by the
ordinary module proxy.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from harness.kept_builds import kept, place_of

NAME = "kubernetes"
SOURCES = Path(__file__).resolve().parent / "go"
# A cold build takes about ten minutes where two cores are ours alone.
BUILD_SECONDS_MAX = 3600
PROGRAMS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
"""The names by which the one binary is called."""
VERSION_PACKAGE = "k8s.io/component-base/version"


class CannotStart(Exception):
    """The error that this machine cannot run it, with what is missing."""


def require(*programs: str) -> None:
    """Check that the machine has these programs. Raises CannotStart with all that are missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise CannotStart(f"not on the machine: {', '.join(missing)}; `make e2e-tools` as root installs what is needed")


def programs() -> Path:
    """Return the folder with all PROGRAMS and `pause`. Raises CannotStart if they are not built: that takes long."""
    folder = place_of(NAME, _sources())
    if not folder.exists():
        raise CannotStart("the programs of Kubernetes are not built: `make e2e-tools` builds them, in some minutes")
    return folder


def build() -> Path:
    """Return the same folder; build it if necessary. Raises CannotStart."""
    require("go")
    return kept(NAME, _sources(), _build)


def kubernetes_version() -> str:
    """Return the version in go.mod, such as v1.34.4."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text(encoding="utf-8"))
    assert found, "go.mod requires k8s.io/kubernetes"
    return found[1]


def _sources() -> list[Path]:
    return [path for path in SOURCES.rglob("*") if path.is_file()]


def _build(folder: Path) -> None:
    """Build static binaries without cgo, so that no C compiler is needed."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items())])
    command = ["go", "build", "-trimpath", f"-ldflags={flags}", "-o", f"{folder}/", "./..."]
    folder.mkdir()
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode != 0:
        shutil.rmtree(folder)
        raise CannotStart(f"go build failed: {done.stderr[-2000:]}")
    for name in PROGRAMS:
        (folder / name).symlink_to("kubernetes")


def main() -> None:
    began_s = time.monotonic()
    print(f"{build()}  ({time.monotonic() - began_s:.0f} s)")


if __name__ == "__main__":
    main()
