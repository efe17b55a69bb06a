"""`python -m local_kubernetes up|status|supply|down`: a real Kubernetes in the background, by itself; needs root.

`make kubernetes` and `make kubernetes-down` are `up` and `down`. Another folder has another cluster.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.kept_builds import cache
from local_kubernetes.binaries import CannotStart, programs
from local_kubernetes.cluster import NETWORK_FILE, PROGRAMS_LINK, LocalCluster, Say
from local_kubernetes.control_plane import NODES
from local_kubernetes.helm import CHART, helm
from local_kubernetes.images import BASE_IMAGE, IMAGES, JOBS, SERVING, project_archive
from local_kubernetes.kubectl import PATIENTLY, cache_of
from local_kubernetes.node import ZONE_LABEL, check_machine

DEFAULT_FOLDER: Final = cache() / "cluster"
STARTED_FILE: Final = "started"
"""The file that exists when everything that was requested runs."""
NAMESPACE: Final = "kafka"
INSTALL: Final = ("install", "barnabas", str(CHART), f"--namespace={NAMESPACE}", "--create-namespace")
"""The install command without images: the chart's own values name the images that are loaded."""
HELM_SECONDS_MAX: Final = 600


def main() -> int:
    """Return 1 if the cluster cannot start, or if nothing runs."""
    parser = argparse.ArgumentParser(
        prog="python -m local_kubernetes", description="A real Kubernetes on this machine."
    )
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where all its files are")
    actions = parser.add_subparsers(dest="action", required=True)
    for name, action in ACTIONS.items():
        actions.add_parser(name, help=action.__doc__)
    actions.choices["up"].add_argument("--nodes", type=int, choices=range(1, len(NODES) + 1), default=1)
    actions.choices["up"].add_argument("--helm", action="store_true", help="installs the chart of Barnabas, too")
    actions.choices["up"].add_argument("--jobs", action="store_true", help="loads the image of MaintenanceJobs, too")
    actions.choices["supply"].add_argument("image", choices=(*IMAGES, BASE_IMAGE))
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    try:
        check_machine()
        ACTIONS[options.action](options)
    except (CannotStart, AssertionError) as reason:
        print(f"cannot: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was started has ended", file=sys.stderr)
        return 130
    return 0


def _up(options: argparse.Namespace) -> None:
    """starts a cluster that stays until `down`; returns when its nodes are ready, each in a zone of its own"""
    if (options.folder / NETWORK_FILE).exists():
        print(f"A Kubernetes runs already:\n{_told(_whole(options.folder))}")
        return
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {text}", flush=True)

    images = (*SERVING, JOBS) if options.jobs else SERVING
    _make_what_takes_long(images, say)
    cluster = LocalCluster.begin(options.folder, outlive=True)
    try:
        _start(cluster, images, options.nodes, options.helm, say)
    except BaseException:
        cluster.down()
        raise
    print(_told(cluster))


def _make_what_takes_long(images: Sequence[str], say: Say) -> None:
    """Build what is not in the cache yet; raise CannotStart before anything is started."""
    programs()
    helm()
    for image in images:
        project_archive(image)
    say("images of the sources as they are")


def _start(cluster: LocalCluster, images: Sequence[str], nodes: int, with_chart: bool, say: Say) -> None:
    cluster.up(say)
    for image in images:
        say(f"{cluster.supply(image)} loaded")
    for number in range(2, nodes + 1):
        say(f"{cluster.add_node(f'zone-{number}')} ready")
    if with_chart:
        _helm(cluster, *INSTALL, "--wait", PATIENTLY)
        say("chart installed")
    (cluster.folder / STARTED_FILE).touch()


def _helm(cluster: LocalCluster, *arguments: str) -> None:
    command = [str(helm()), f"--kubeconfig={cluster.plane.kubeconfig}", *arguments]
    own = cluster.plane.kubectl.environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HELM_SECONDS_MAX, env=own)
    if done.returncode != 0:
        raise CannotStart(f"helm {arguments[0]}: {done.stderr.strip()}")


def _whole(folder: Path) -> LocalCluster:
    cluster = LocalCluster.find(folder)
    if not (folder / STARTED_FILE).exists() or not cluster.is_running():
        raise CannotStart(
            f"the cluster in {folder} is starting now, or its start was ended, or a part of it has ended; "
            f"`{_end(folder)}` removes it"
        )
    return cluster


def _told(cluster: LocalCluster) -> str:
    """Return what is in the cluster, how to use it and how to end it."""
    places = [cluster.folder / PROGRAMS_LINK, *([] if shutil.which("helm") else [helm().parent])]
    config = cluster.plane.kubeconfig
    lines = [f"  {title:14} {text}" for title, text in _contents(cluster).items()]
    return "\n".join(
        [
            *lines,
            "To use it:",
            f"export KUBECONFIG={config} KUBECACHEDIR={cache_of(config)} PATH={':'.join(map(str, places))}:$PATH",
            "To end it:",
            _end(cluster.folder),
        ]
    )


def _contents(cluster: LocalCluster) -> dict[str, str]:
    kubectl = cluster.plane.kubectl
    nodes = json.loads(kubectl("get", "nodes", "-o=json"))["items"]
    names = "-o=jsonpath={.items[*].metadata.name}"
    label = "-l=app.kubernetes.io/name=barnabas-operator"
    operators = kubectl("get", "deployments", "-A", label, "-o=jsonpath={.items[*].metadata.namespace}").split()
    return {
        "folder": str(cluster.folder),
        "version": nodes[0]["status"]["nodeInfo"]["kubeletVersion"],
        "nodes": ", ".join(f"{node['metadata']['name']} in {node['metadata']['labels'][ZONE_LABEL]}" for node in nodes),
        "storage class": kubectl("get", "storageclasses", names),
        "images": ", ".join(cluster.nodes[NODES[0]].images()),
        "Barnabas": f"CRDs, and the operator in namespace {', '.join(operators)}"
        if operators
        else f"not installed: helm {' '.join(INSTALL)}",
    }


def _end(folder: Path) -> str:
    return "make kubernetes-down" + ("" if folder == DEFAULT_FOLDER else f" FOLDER={folder}")


def _supply(options: argparse.Namespace) -> None:
    """builds an image and imports it into the nodes"""
    print(LocalCluster.find(options.folder).supply(options.image))


def _status(options: argparse.Namespace) -> None:
    """a line for each of its programs"""
    print("\n".join(LocalCluster.find(options.folder).status()))


def _down(options: argparse.Namespace) -> None:
    """ends it, whoever started it and however far, and leaves the machine as it was"""
    if not (options.folder / NETWORK_FILE).exists():
        print(f"no cluster is in {options.folder}: there is nothing to end")
        return
    LocalCluster.find(options.folder).down()
    print(f"the cluster in {options.folder} has ended, and nothing of it is left")


ACTIONS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "up": _up,
    "status": _status,
    "supply": _supply,
    "down": _down,
}

if __name__ == "__main__":
    sys.exit(main())
