"""A release as its users get it: the chart in `dist/` runs with the images in `dist/`, and with no others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harness.require import missing
from local_kubernetes.binaries import CannotStart
from local_kubernetes.cluster import LocalCluster
from local_kubernetes.helm import ask_helm
from local_kubernetes.kubectl import PATIENTLY

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = Path(__file__).resolve().parents[2]
SERVING: Final = ("broker", "operator")
IMAGES: Final = '-o=jsonpath={range .items[*].spec.containers[*]}{.image}{"\\n"}{end}'


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A release of the current commit."""
    folder = tmp_path / "dist"
    command = [sys.executable, "-m", "release", str(folder), "--images", *SERVING]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[LocalCluster]:
    """A separate Kubernetes without any image of this project."""
    try:
        cluster = LocalCluster.begin(tmp_path / "kubernetes", outlive=False)
    except CannotStart as reason:
        missing(reason)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def test_the_chart_of_a_release_runs_with_the_images_of_the_release(dist: Path, kubernetes: LocalCluster) -> None:
    (chart,) = dist.glob("barnabas-*.tgz")
    version = chart.stem.removeprefix("barnabas-")
    for image in SERVING:
        kubernetes.import_archive(dist / f"barnabas-{image}-{version}.oci.tar")
    kubectl = kubernetes.plane.kubectl
    namespace = ("--namespace=kafka", "--create-namespace")
    done = ask_helm("install", "barnabas", str(chart), *namespace, "--wait", PATIENTLY, of=kubectl)
    assert done.returncode == 0, done.stderr
    kubectl("-n", "kafka", "apply", "-f", str(ROOT / "examples" / "kubernetes" / "cluster.yaml"))
    kubectl("-n", "kafka", "wait", "--for=condition=Ready", "bc/flights", PATIENTLY)
    running = set(kubectl("-n", "kafka", "get", "pods", IMAGES).split())
    assert running == {f"docker.io/library/barnabas-{image}:{version}" for image in SERVING}
