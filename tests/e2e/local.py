"""`python -m e2e.local up|down|status`: a real Kubernetes of one node as processes of this machine; needs root.

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
from typing import Final

from e2e.binaries import CannotStart, programs
from e2e.control_plane import ControlPlane
from e2e.daemons import Daemons
from e2e.images import pause_archive
from e2e.node import Network, Node, check_machine, free_network

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "barnabas-e2e"
STORAGE_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/host-path",
}
"""Folders of the node, made and removed by the controller manager."""
Say = Callable[[str], None]


class LocalCluster:
    """One cluster below `folder`. Where `outlive` is false it ends with the thread that started it."""

    def __init__(self, folder: Path, outlive: bool) -> None:
        check_machine()
        self.folder = folder
        self._daemons = Daemons(folder / "run", outlive)
        self.network = self._recorded_network() or free_network()
        found = programs()
        self.plane = ControlPlane(folder, self._daemons, found, self.network.place)
        self.node = Node(folder / "node", self.network, self._daemons, found)

    def up(self, say: Say = lambda text: None) -> None:
        """Returns when the node is ready. Raises CannotStart and DaemonFailed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._network_file.exists():
            raise CannotStart(f"a cluster is in {self.folder} already: `down` ends it")
        self._network_file.write_text(str(self.network.number), encoding="ascii")
        self.node.begin()
        self.plane.start_api()
        say("API ready")
        self.plane.start_controllers(self.node.enter("net", "mount"))
        self.node.start_containerd()
        self.node.import_image(pause_archive())
        self.node.start_kubelet(self.plane)
        self.node.await_ready(self.plane)
        self.plane.kubectl("apply", "-f-", stdin=json.dumps(STORAGE_CLASS))
        say("node ready")

    def down(self) -> None:
        """Ends all and leaves the machine as it was; also what another process started."""
        self._daemons.stop_all()
        if self._network_file.exists():
            self.node.leave()
            shutil.rmtree(self.folder)

    def status(self) -> list[str]:
        """A line for each program."""
        words = {True: "running", False: "ended"}
        return [f"{name:25} {words[self._daemons.is_running(name)]}" for name in self._daemons.names()]

    @property
    def _network_file(self) -> Path:
        return self.folder / "network"

    def _recorded_network(self) -> Network | None:
        if not self._network_file.exists():
            return None
        return Network(int(self._network_file.read_text(encoding="ascii")))


def main() -> int:
    """1 where it cannot start or nothing runs."""
    parser = argparse.ArgumentParser(prog="python -m e2e.local", description="A real Kubernetes on this machine.")
    parser.add_argument("action", choices=("up", "down", "status"))
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where all its files are")
    options = parser.parse_args()
    try:
        cluster = LocalCluster(options.folder.resolve(), outlive=True)
        return ACTIONS[options.action](cluster)
    except CannotStart as reason:
        print(f"cannot start: {reason}", file=sys.stderr)
        return 1


def _up(cluster: LocalCluster) -> int:
    began_s = time.monotonic()
    cluster.up(lambda text: print(f"{time.monotonic() - began_s:6.1f} s  {text}", flush=True))
    print(f"export KUBECONFIG={cluster.plane.kubeconfig} PATH={cluster.plane.programs}:$PATH")
    return 0


def _down(cluster: LocalCluster) -> int:
    cluster.down()
    return 0


def _status(cluster: LocalCluster) -> int:
    lines = cluster.status()
    print("\n".join(lines) or f"nothing runs in {cluster.folder}")
    return int(not lines)


ACTIONS = {"up": _up, "down": _down, "status": _status}

if __name__ == "__main__":
    sys.exit(main())
