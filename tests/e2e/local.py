"""`python -m e2e.local up|status|supply|down`: a real Kubernetes as processes of this machine; needs root.

Nothing is pulled: Debian's containerd and the programs that `e2e.binaries` built. All files are in one folder.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from e2e.binaries import CannotStart, locked, programs
from e2e.control_plane import NODES, ControlPlane
from e2e.daemons import Daemons
from e2e.images import BASE_IMAGE, IMAGES, base_archive, pause_archive, project_archive, reference
from e2e.network import Network
from e2e.node import Node, check_machine, free_network

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "barnabas-e2e"
NETWORK_FILE: Final = "network"
STORAGE_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/host-path",
}
"""Folders that all nodes see, made and removed by the controller manager."""
FIRST_ZONE: Final = "zone-1"
Say = Callable[[str], None]


class LocalCluster:
    """One cluster below `folder`. Where `outlive` is false it ends with the thread that started it."""

    def __init__(self, folder: Path, network: Network, outlive: bool) -> None:
        self.folder = folder
        self.network = network
        self._daemons = Daemons(folder / "run", outlive)
        self._programs = programs()
        self._supplied: list[Path] = []
        self.plane = ControlPlane(folder, self._daemons, self._programs, network.place)
        self.nodes = {name: self._node(name) for name in NODES if (folder / name).exists()}

    @classmethod
    def begin(cls, folder: Path, outlive: bool) -> Self:
        """A new one: its first node with addresses that nobody else has, and nothing on it. Raises CannotStart."""
        check_machine()
        if (folder / NETWORK_FILE).exists():
            raise CannotStart(f"a cluster is in {folder} already: `python -m e2e.local down` ends it")
        folder.mkdir(parents=True, exist_ok=True)
        with locked("network"):
            cluster = cls(folder, free_network(), outlive)
            (folder / NETWORK_FILE).write_text(str(cluster.network.number), encoding="ascii")
            try:
                cluster._begin_node()
            except BaseException:
                cluster.down()
                raise
        return cluster

    @classmethod
    def find(cls, folder: Path) -> Self:
        """One that another process started. Raises CannotStart where there is none."""
        check_machine()
        if not (folder / NETWORK_FILE).exists():
            raise CannotStart(f"no cluster is in {folder}: `python -m e2e.local up` starts one")
        return cls(folder, Network(int((folder / NETWORK_FILE).read_text(encoding="ascii"))), outlive=True)

    def up(self, say: Say = lambda text: None) -> None:
        """Starts all that runs on it; returns when the first node is ready. Raises DaemonFailed."""
        self.plane.start_api()
        say("API ready")
        first = self.nodes[NODES[0]]
        self.plane.start_controllers(first.enter("net", "mount"))
        first.start_dns(self.plane)
        self._start_node(first, FIRST_ZONE)
        self.plane.kubectl("apply", "-f-", stdin=json.dumps(STORAGE_CLASS))
        say(f"{first.name} ready")

    def add_node(self, zone: str) -> str:
        """One more, with the images that were supplied; returns its name when it is ready. Raises DaemonFailed."""
        node = self._begin_node()
        self._start_node(node, zone)
        for archive in self._supplied:
            node.import_image(archive)
        return node.name

    def supply(self, image: str) -> str:
        """Makes one of IMAGES, or BASE_IMAGE, known to the nodes, also those to come; what pods call it."""
        archive = base_archive() if image == BASE_IMAGE else project_archive(image)
        self._supplied.append(archive)
        for node in self.nodes.values():
            node.import_image(archive)
        return image if image == BASE_IMAGE else reference(image)

    def kill_container(self, node: str, container: str) -> None:
        """kill -9 of the first process of a container that runs on a node."""
        self.nodes[node].kill_container(container)

    def down(self) -> None:
        """Ends all and leaves the machine as it was; also what another process started."""
        self._daemons.stop_all()
        # The folders that the first node made hold those of the others.
        for node in reversed(self.nodes.values()):
            node.leave()
        shutil.rmtree(self.folder)

    def status(self) -> list[str]:
        """A line for each program."""
        words = {True: "running", False: "ended"}
        return [f"{name:25} {words[self._daemons.is_running(name)]}" for name in self._daemons.names()]

    def _node(self, name: str) -> Node:
        return Node(name, self.folder, self.network, self._daemons, self._programs)

    def _begin_node(self) -> Node:
        if len(self.nodes) == len(NODES):
            raise CannotStart(f"a cluster has {len(NODES)} nodes at most")
        node = self._node(NODES[len(self.nodes)])
        self.nodes[node.name] = node
        node.begin()
        return node

    def _start_node(self, node: Node, zone: str) -> None:
        node.start_containerd()
        node.import_image(pause_archive())
        node.start_kubelet(self.plane, zone)
        node.await_ready(self.plane)


def main() -> int:
    """1 where it cannot start or nothing runs."""
    parser = argparse.ArgumentParser(prog="python -m e2e.local", description="A real Kubernetes on this machine.")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where all its files are")
    actions = parser.add_subparsers(dest="action", required=True)
    for name, action in ACTIONS.items():
        actions.add_parser(name, help=action.__doc__)
    actions.choices["up"].add_argument("--nodes", type=int, choices=range(1, len(NODES) + 1), default=1)
    actions.choices["supply"].add_argument("image", choices=(*IMAGES, BASE_IMAGE))
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    try:
        ACTIONS[options.action](options)
    except CannotStart as reason:
        print(f"cannot: {reason}", file=sys.stderr)
        return 1
    return 0


def _up(options: argparse.Namespace) -> None:
    """starts a cluster; returns when its nodes are ready, each in a zone of its own"""
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {text}", flush=True)

    cluster = LocalCluster.begin(options.folder, outlive=True)
    cluster.up(say)
    for number in range(2, options.nodes + 1):
        say(f"{cluster.add_node(f'zone-{number}')} ready")
    print(f"export KUBECONFIG={cluster.plane.kubeconfig} PATH={cluster.plane.programs}:$PATH")


def _supply(options: argparse.Namespace) -> None:
    """builds an image and imports it into the nodes"""
    print(LocalCluster.find(options.folder).supply(options.image))


def _down(options: argparse.Namespace) -> None:
    """ends it and leaves the machine as it was"""
    LocalCluster.find(options.folder).down()


def _status(options: argparse.Namespace) -> None:
    """a line for each of its programs"""
    print("\n".join(LocalCluster.find(options.folder).status()))


ACTIONS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "up": _up,
    "status": _status,
    "supply": _supply,
    "down": _down,
}

if __name__ == "__main__":
    sys.exit(main())
