"""A real Kubernetes as processes of this machine; needs root. `make kubernetes` starts one by itself.

Nothing is pulled: Debian's containerd and the programs that `local_kubernetes.binaries` built. All
files are in one folder.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from harness.kept_builds import locked
from local_kubernetes.binaries import CannotStart, programs
from local_kubernetes.control_plane import NODES, ControlPlane
from local_kubernetes.daemons import Daemons
from local_kubernetes.images import BASE_IMAGE, JOBS, base_archive, pause_archive, project_archive, reference
from local_kubernetes.machine_folders import MachineFolders
from local_kubernetes.network import Network
from local_kubernetes.node import Node, check_machine, free_network, networks
from local_kubernetes.whole_file import write_whole

NETWORK_FILE: Final = "network"
PROGRAMS_LINK: Final = "programs"
"""The link to the programs with which it was started: the sources may have others in the meantime."""
STORAGE_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/host-path",
}
"""A storage class whose volumes are folders that all nodes see; the controller manager makes and removes them."""
FIRST_ZONE: Final = "zone-1"
Say = Callable[[str], None]


class LocalCluster:
    """A cluster below `folder`. If `outlive` is false it ends with the thread that started it."""

    def __init__(self, folder: Path, network: Network, outlive: bool) -> None:
        self.folder = folder
        self.network = network
        self._daemons = Daemons(folder / "run", outlive)
        self._programs = folder / PROGRAMS_LINK
        self._supplied: list[Path] = []
        self.plane = ControlPlane(folder, self._daemons, self._programs, network.place)
        self.nodes = {name: self._node(name) for name in NODES if (folder / name).exists()}

    @classmethod
    def begin(cls, folder: Path, outlive: bool) -> Self:
        """Make a new one: an empty first node, with addresses that nobody else has. Raises CannotStart."""
        check_machine()
        built = programs()
        with locked("network"):
            cluster = cls(folder, _claimed(folder, built), outlive)
            try:
                cluster._begin_node()
            except BaseException:
                cluster._daemons.stop_all()
                cluster._leave()
                raise
        return cluster

    @classmethod
    def find(cls, folder: Path) -> Self:
        """Return a cluster that another process started. Raises CannotStart if there is none."""
        check_machine()
        if not (folder / NETWORK_FILE).exists():
            raise CannotStart(f"no cluster is in {folder}: `make kubernetes` starts one")
        return cls(folder, Network(int((folder / NETWORK_FILE).read_text(encoding="ascii"))), outlive=True)

    def up(self, say: Say = lambda text: None) -> None:
        """Start everything; return when the first node is ready. Raises DaemonFailed."""
        self.plane.start_api()
        say("API ready")
        first = self.nodes[NODES[0]]
        self.plane.start_controllers(first.enter("net", "mount"))
        first.start_dns(self.plane)
        self._start_node(first, FIRST_ZONE)
        self.plane.kubectl("apply", "-f-", stdin=json.dumps(STORAGE_CLASS))
        say(f"{first.name} ready")

    def add_node(self, zone: str) -> str:
        """Add a node with the images that were supplied; return its name when it is ready. Raises DaemonFailed.

        It does not get the image of the jobs, a gigabyte: only the first nodes have that.
        """
        node = self._begin_node()
        self._start_node(node, zone)
        for archive in self._supplied:
            node.import_image(archive)
        return node.name

    def supply(self, image: str) -> str:
        """Bring one of IMAGES, or BASE_IMAGE, to the nodes; return the name that pods use.

        Nodes that are added later get it, too, except that of the jobs.
        """
        archive = base_archive() if image == BASE_IMAGE else project_archive(image)
        self.import_archive(archive, on_nodes_to_come=image != JOBS)
        return image if image == BASE_IMAGE else reference(image)

    def import_archive(self, archive: Path, on_nodes_to_come: bool = True) -> None:
        """Import an image into the nodes, under the name in its archive."""
        if on_nodes_to_come:
            self._supplied.append(archive)
        for node in self.nodes.values():
            node.import_image(archive)

    def kill_container(self, node: str, container: str) -> None:
        """Kill the first process of a container on a node with `kill -9`."""
        self.nodes[node].kill_container(container)

    def down(self) -> None:
        """End everything, also what another process started, and leave the machine as it was."""
        self._daemons.stop_all()
        with locked("network"):
            self._leave()

    def status(self) -> list[str]:
        """Return a line for each program."""
        words = {True: "running", False: "ended"}
        return [f"{name:25} {words[self._daemons.is_running(name)]}" for name in self._daemons.names()]

    def is_running(self) -> bool:
        """True if no program has ended since its start."""
        return all(map(self._daemons.is_running, self._daemons.names()))

    def _leave(self) -> None:
        for node in self.nodes.values():
            node.leave()
        # The kernel may not be done with taking back our own routes.
        if not networks() - {self.network.number}:
            MachineFolders().take_back()
        shutil.rmtree(self.folder)

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


def _claimed(folder: Path, built: Path) -> Network:
    """Write the file that `find` reads. Only root may read the folder: its tokens give every right in the cluster."""
    if (folder / NETWORK_FILE).exists():
        raise CannotStart(f"a cluster is in {folder} already: `make kubernetes-down` ends it")
    network = free_network()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / NETWORK_FILE, str(network.number))
    (folder / PROGRAMS_LINK).symlink_to(built)
    return network
