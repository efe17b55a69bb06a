"""Machines inside this machine: each has a network and a small disk of its own; tests cut the cables between them.

    with Lan(3, disk_at=lambda number: folder / str(number), disk_mib=512) as lan:
        lan.cut(0, 1)           # What 0 sends to 1 is lost; 1 still reaches 0.
        lan.cut(CLIENTS, 2)     # What this process sends to 2 is lost.
        lan.mend()

Needs root. A machine is a process that waits in its own namespaces. When the process that made it ends, so do the
machine, its links, addresses and disk: nothing is left behind, however a run ends.
What one machine sends to another is lost when it knows a wrong hardware address for it: as behind a broken cable,
nobody is told, and no firewall is needed.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from harness.deadline import wait_for
from harness.server_process import Place, bound_to_us

CLIENTS: Final = -1
"""The number of this process among the machines."""
NOBODYS_HARDWARE_ADDRESS: Final = "02:00:00:00:00:99"
# 198.18.0.0/15 is set aside for trials of networks (RFC 2544): nobody is reached there.
NETWORKS: Final = [f"198.{18 + number // 256}.{number % 256}" for number in range(512)]
PROGRAMS: Final = ("ip", "mount", "nsenter", "unshare")


class MachinesUnavailable(Exception):
    """The error that this machine does not allow it, with the reason."""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MachinesUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Machine:
    """A process that waits in a network and a mount namespace of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        command = bound_to_us(["unshare", "--net", "--mount", "sleep", "infinity"])
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid = self._process.pid
        wait_for(lambda: self._process.poll() is not None or self._is_apart())
        if self._process.poll() is not None:
            self.close()
            raise MachinesUnavailable("unshare: no namespaces of its own")

    def _is_apart(self) -> bool:
        """True if it has a mount namespace of its own, or has just ended."""
        with suppress(OSError):
            return os.readlink(f"/proc/{self.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        return True

    @property
    def place(self) -> Place:
        """Return the place for servers on this machine."""
        namespaces = (f"--net=/proc/{self.pid}/ns/net", f"--mount=/proc/{self.pid}/ns/mnt")
        return Place(self.address, ("nsenter", *namespaces, "--"))

    def run(self, *command: str) -> str:
        """Return the output of a command that runs on this machine. Raises MachinesUnavailable."""
        return _run(*self.place.enter, *command)

    def mount_disk(self, path: Path, size_mib: int) -> None:
        """Mount a small disk that only this machine sees."""
        path.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path))

    def seen_from_outside(self, path: Path) -> Path:
        """Return the path at which this process finds what the machine has at an absolute path."""
        return Path(f"/proc/{self.pid}/root") / path.relative_to("/")

    def close(self) -> None:
        """End the machine with its namespaces; its processes must end by themselves."""
        self._process.kill()
        self._process.wait()


def _claim_network() -> tuple[str, socket.socket]:
    """Return a network that no other process has, and the socket that claims it: only one process can have its name."""
    routes = _run("ip", "-4", "route")
    for network in NETWORKS:
        claim = socket.socket(socket.AF_UNIX)
        try:
            if f"{network}." not in routes:
                claim.bind(f"\0barnabas-lan-{network}")
                return network, claim
        except OSError:
            pass  # Another run is about to use it.
        claim.close()
    raise MachinesUnavailable(f"all of {NETWORKS[0]}.0/24 to {NETWORKS[-1]}.0/24 are in use")


class Lan:
    """Machines 0, 1, ... and this process (`CLIENTS`) on one switch. Raises MachinesUnavailable."""

    def __init__(self, count: int, disk_at: Callable[[int], Path], disk_mib: int) -> None:
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing or os.geteuid() != 0:
            raise MachinesUnavailable(f"{missing[0]} is not on the machine" if missing else "needs root")
        self._network, self._claim = _claim_network()
        self._cuts: list[tuple[int, int]] = []
        self._switch = Machine("")
        self._device = f"lan{self._switch.pid}"
        self.machines: list[Machine] = []
        try:
            self._connect_us()
            for number in range(count):
                self._add_machine(number)
                self.machines[number].mount_disk(disk_at(number), disk_mib)
        except BaseException:
            self.close()
            raise

    def _connect_us(self) -> None:
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        self._plug(self._device, "clients", os.getpid())
        _run("ip", "address", "add", f"{self.address(CLIENTS)}/24", "dev", self._device)
        _run("ip", "link", "set", self._device, "up")

    def _add_machine(self, number: int) -> None:
        machine = Machine(self.address(number))
        self.machines.append(machine)
        self._plug("eth0", f"machine{number}", machine.pid)
        machine.run("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            machine.run("ip", "link", "set", device, "up")

    def _plug(self, device: str, socket: str, pid: int) -> None:
        """Lay a cable from a device of that process to a socket of the switch."""
        peer = ("type", "veth", "peer", "name", device, "netns", str(pid))
        self._switch.run("ip", "link", "add", socket, *peer)
        self._switch.run("ip", "link", "set", socket, "master", "switch", "up")

    def address(self, number: int) -> str:
        """Return the address of a machine, or of this process."""
        return f"{self._network}.{254 if number == CLIENTS else number + 1}"

    def cut(self, source: int, target: int) -> None:
        """Lose from now on everything that the source sends to the target."""
        wrong = ("lladdr", NOBODYS_HARDWARE_ADDRESS, "nud", "permanent")
        self._neighbour("replace", source, target, *wrong)
        self._cuts.append((source, target))

    def mend(self) -> None:
        """Let all machines reach each other again."""
        while self._cuts:
            source, target = self._cuts.pop()
            if (source, target) not in self._cuts:
                self._neighbour("del", source, target)

    def _neighbour(self, change: str, source: int, target: int, *how: str) -> None:
        device = self._device if source == CLIENTS else "eth0"
        run = _run if source == CLIENTS else self.machines[source].run
        run("ip", "neigh", change, self.address(target), *how, "dev", device)

    def close(self) -> None:
        """End all machines and the switch."""
        for machine in (*self.machines, self._switch):
            machine.close()
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
