"""The Kubernetes tutorial and the how-to pages do what they say, on a Kubernetes that has the images they name."""

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from documents.how_to import ON_KUBERNETES
from documents.pages import DOCS, inline_commands
from documents.reader import Reader
from e2e.pods.castle import Castle
from e2e.pods.figures import Figures
from e2e.pods.providers import Cluster, provider
from e2e.pods.secured_load import KILL_SECONDS_MAX, PAUSE_SECONDS_MAX, SecuredLoad
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
    "kubectl delete statefulset": "is what the page advises against",
}
"""The beginnings of commands in sentences that the test does not type, and why."""
KILLED: Final = "a broker is killed"
OF_A_DAY: Final = ("users", "troubleshoot", "scale", "disks", "roll")
BACK: Final = """kubectl patch bc NAME --type=merge -p '{"spec":{"brokers":{"replicas":3}}}'"""


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    """A separate Kubernetes: one release of the chart owns the CRDs, so another one would be refused."""
    if E2E == "current":
        pytest.skip("the pages install the chart, which may be installed")
    with provider(E2E)(tmp_path / "kubernetes") as started:
        for image in SERVING:
            started.image(image)
        yield started


@pytest.fixture
def images_of_all_pages(kubernetes: Cluster) -> Iterator[None]:
    """Bring the other images beside: that of the jobs has a gigabyte, and is needed minutes later."""
    with ThreadPoolExecutor(1) as beside:
        rest = beside.submit(lambda: [kubernetes.image(image) for image in (PROMETHEUS_IMAGE, JOBS)])
        yield
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


@pytest.mark.usefixtures("images_of_all_pages")
@pytest.mark.soak(only=True)
def test_every_command_of_the_tutorial_does_what_the_page_says(reader: Reader) -> None:
    reader.do(DOCS / "tutorials" / "kubernetes.md")


@pytest.mark.soak(only=True)
def test_every_command_of_install_users_and_troubleshoot_works_with_a_secured_cluster(reader: Reader) -> None:
    secured = reader.with_words(SECURED)
    for name in ("install", "users", "troubleshoot"):
        type_every_command(secured, name)
    secured.type("kubectl -n kafka wait --for=condition=Ready bc/flights bu/loader --timeout=2m")


@pytest.mark.soak(only=True)
def test_nothing_is_lost_or_doubled_on_a_day_with_a_secured_cluster(
    reader: Reader, kubernetes: Cluster, figures: Figures
) -> None:
    reader.with_words(SECURED).do(DOCS / "how-to" / "install.md")
    with closing(Castle(kubernetes, namespace=NAMESPACE)) as castle:
        castle.await_ready()
        load = SecuredLoad(castle, figures)
        load.begin()
        day = reader.with_words(SECURED, load.step)
        for name in OF_A_DAY:
            type_every_command(day, name)
        day.type(BACK)
        refused = load.refused_logins()
        with load.step("a password is rotated with an overlap"):
            load.rotate()
        with load.step("the clients restart with the new password"):
            load.restart_clients()
        refused = load.refused_logins() - refused
        with load.step("the authority of the brokers is renewed"):
            load.renew()
        with load.step(KILLED):
            castle.crash(f"{castle.name}-broker-1")
        with load.step("the operator's pod is deleted"):
            castle.kubectl("delete", "pod", "-lapp.kubernetes.io/name=barnabas-operator")
        problems = load.problems()
    assert (problems, refused) == ([], 0)
    bounds_s = dict.fromkeys(load.longest_s, PAUSE_SECONDS_MAX) | {KILLED: KILL_SECONDS_MAX}
    assert {what: longest_s for what, longest_s in load.longest_s.items() if longest_s > bounds_s[what]} == {}


def type_every_command(reader: Reader, name: str) -> None:
    """Do a how-to page, and type the commands of its sentences and tables."""
    page = DOCS / "how-to" / f"{name}.md"
    reader.do(page)
    for command in inline_commands(page):
        if not command.startswith(tuple(NOT_TYPED)):
            reader.type(command)


@pytest.mark.usefixtures("images_of_all_pages")
@pytest.mark.soak(only=True)
def test_every_command_of_the_how_to_pages_does_what_the_page_says(reader: Reader, kubernetes: Cluster) -> None:
    with closing(Castle(kubernetes, namespace=NAMESPACE)) as castle:
        for page in ON_KUBERNETES:
            with reader.until_ctrl_c():
                reader.do(DOCS / "how-to" / f"{page}.md")
            # A person begins no page while brokers restart for the one before. The last pages delete the Cluster.
            there = castle.ask("get", f"clusters.barnabas.dev/{castle.name}", "-ojsonpath={.spec.brokers.replicas}")
            if there.returncode == 0:
                castle.brokers = int(there.stdout)
                castle.await_ready()
