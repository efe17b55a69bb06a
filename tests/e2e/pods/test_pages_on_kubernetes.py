"""The Kubernetes tutorial and the how-to pages do what they say, on a Kubernetes that has the images they name."""

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from documents.how_to import ON_KUBERNETES
from documents.pages import DOCS, inline_commands
from documents.reader import Reader
from e2e.pods.providers import Cluster, provider
from harness.require import require
from local_kubernetes.helm import helm
from local_kubernetes.images import JOBS, SERVING
from local_kubernetes.kubectl import Kubectl
from monitoring.prometheus_image import PROMETHEUS_IMAGE

ROOT: Final = DOCS.parent
NAMESPACE: Final = "kafka"
E2E: Final = os.environ.get("E2E", "")
STANDS_FOR: Final = {"NAME": "flights", "NAMESPACE": NAMESPACE, "REGISTRY": "docker.io/library"}
SECURED: Final = {
    "examples/kubernetes/cluster.yaml": "examples/kubernetes/secured-cluster.yaml",
    "--topic T": "--all",
}
"""What the pages say, and what a reader with a secured Cluster writes instead."""
NOT_TYPED: Final = {
    "kubectl debug": "the nodes cannot pull the image of the shell",
    "kubectl exec -it": "is a dialogue",
    "kubectl logs job/": "needs a MaintenanceJob, which has failed",
    "kubectl rollout restart": "restarts the reader's own clients",
}
"""The beginnings of commands in sentences that the test does not type, and why."""


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    """A separate Kubernetes: one release of the chart owns the CRDs, so another one would be refused."""
    if E2E == "current":
        pytest.skip("the pages install the chart, which may be installed")
    with provider(E2E)(tmp_path / "kubernetes") as started, ThreadPoolExecutor(1) as beside:
        for image in SERVING:
            started.image(image)
        # The jobs' image has a gigabyte, and is needed minutes later.
        rest = beside.submit(lambda: [started.image(image) for image in (PROMETHEUS_IMAGE, JOBS)])
        yield started
        rest.result()


@pytest.fixture
def reader(kubernetes: Cluster, tmp_path: Path) -> Reader:
    """A reader in the folder of the sources, with kubectl in the namespace of the pages."""
    require(shutil.which("kcat"), "kcat: apt-get install kcat")
    for folder in ("examples", "helm"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    own = Kubectl(kubernetes.kubectl.program, tmp_path / "kubeconfig")
    own.kubeconfig.write_bytes(kubernetes.kubectl.kubeconfig.read_bytes())
    own("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    programs = [own.program.parent, helm().parent, Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return Reader(tmp_path, {**own.environment, "PATH": path, "KUBECONFIG": str(own.kubeconfig)}, STANDS_FOR)


@pytest.mark.soak(only=True)
def test_every_command_of_the_tutorial_does_what_the_page_says(reader: Reader) -> None:
    reader.do(DOCS / "tutorials" / "kubernetes.md")


@pytest.mark.soak(only=True)
def test_every_command_of_install_users_and_troubleshoot_works_with_a_secured_cluster(reader: Reader) -> None:
    secured = reader.with_words(SECURED)
    for name in ("install", "users", "troubleshoot"):
        page = DOCS / "how-to" / f"{name}.md"
        secured.do(page)
        for command in inline_commands(page):
            if not command.startswith(tuple(NOT_TYPED)):
                secured.type(command)
    secured.type("kubectl -n kafka wait --for=condition=Ready bc/flights bu/loader --timeout=2m")


@pytest.mark.soak(only=True)
def test_every_command_of_the_how_to_pages_does_what_the_page_says(reader: Reader) -> None:
    for page in ON_KUBERNETES:
        with reader.until_ctrl_c():
            reader.do(DOCS / "how-to" / f"{page}.md")
