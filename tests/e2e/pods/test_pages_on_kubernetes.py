"""The tutorial for Kubernetes and the how-to pages do what they say, on a Kubernetes that has the images they name."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from documents.how_to import ON_KUBERNETES
from documents.pages import DOCS
from documents.reader import Reader
from e2e.pods.providers import Cluster
from local_kubernetes.helm import helm
from local_kubernetes.images import IMAGES, reference
from local_kubernetes.kubectl import PATIENTLY, Kubectl
from monitoring.prometheus_image import PROMETHEUS_IMAGE

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = DOCS.parent
NAMESPACE: Final = "kafka"
STANDS_FOR: Final = {"NAME": "flights", "NAMESPACE": NAMESPACE, "REGISTRY": "docker.io/library"}
CRDS: Final = ROOT / "crds"


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Iterator[Reader]:
    """A reader whose kubectl is in the namespace of the pages, and whose release is the only one that owns the CRDs."""
    for image in IMAGES:
        if cluster.image(image) != reference(image):
            pytest.skip(f"the pages name {reference(image)}, and nodes have {cluster.image(image)}")
    cluster.image(PROMETHEUS_IMAGE)
    for folder in ("examples", "helm"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    own = Kubectl(cluster.kubectl.program, tmp_path / "kubeconfig")
    own.kubeconfig.write_bytes(cluster.kubectl.kubeconfig.read_bytes())
    own("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    programs = [own.program.parent, helm().parent, Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    reading = Reader(tmp_path, {**own.environment, "PATH": path, "KUBECONFIG": str(own.kubeconfig)}, STANDS_FOR)
    try:
        yield reading
    finally:
        # Of its release helm leaves the CRDs, and those of a release with another name would be refused.
        own("delete", "--ignore-not-found", PATIENTLY, "-f", str(CRDS))


def test_every_command_of_the_tutorial_does_what_the_page_says(reader: Reader) -> None:
    reader.do(DOCS / "tutorials" / "kubernetes.md")


def test_every_command_of_the_how_to_pages_does_what_the_page_says(reader: Reader) -> None:
    for page in ON_KUBERNETES:
        with reader.until_ctrl_c():
            reader.do(DOCS / "how-to" / f"{page}.md")
