"""One node of a real cluster: containerd, kubelet, kube-proxy and DNS in namespaces of their own; needs root.

The node has its own network, mounts and process ids, as a container has. When its first process ends, the kernel ends
everything in it and takes back links, routes, firewall rules and mounts; `leave` takes back the control groups, and the
last cluster that goes the empty folders of `local_kubernetes.machine_folders`.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from harness.deadline import wait_for
from local_kubernetes.binaries import CannotStart, require
from local_kubernetes.control_plane import NODES, ControlPlane
from local_kubernetes.daemons import Daemons
from local_kubernetes.machine_folders import MachineFolders
from local_kubernetes.network import Network

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
CONTAINERD_FOLDER: Final = "/var/lib/containerd"
PAUSE_IMAGE: Final = "localhost/pause:1"
CGROUPS: Final = Path("/sys/fs/cgroup")
CNI_PROGRAMS: Final = Path("/usr/lib/cni")
PROGRAMS: Final = ("containerd", "ctr", "ip", "iptables", "mount", "nsenter", "openssl", "runc", "setpriv", "unshare")
# Kubelet would set these for the whole machine, for they have no namespace: in the node they are files of its own.
MACHINE_SETTINGS: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
# What programs take for theirs alone; in the node they are folders of the node.
OWN_FOLDERS: Final = {
    "cni-config": "/etc/cni/net.d",
    "cni": "/var/lib/cni",
    "kubelet": "/var/lib/kubelet",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
}
VOLUMES_FOLDER: Final = "/tmp/hostpath_pv"


def free_network() -> Network:
    """Return a network without a route to its addresses and without control groups of a killed cluster."""
    left = {path.name for depth in ("", "*/") for path in CGROUPS.glob(f"{depth}barnabas-e2e*")}
    numbers = {int(name.removeprefix("barnabas-e2e").partition("-")[0]) for name in left}
    return Network(min(set(range(256)) - networks() - numbers))


def networks() -> set[int]:
    """Return the numbers of the networks that nodes of this machine have."""
    return {int(number) for number in re.findall(r"\b10\.200\.(\d+)\.", _run("ip", "-4", "route"))}


def check_machine() -> None:
    """Check the machine. Raises CannotStart with what it lacks."""
    if os.geteuid() != 0:
        raise CannotStart("a node needs root: run it as root; without, `make e2e E2E=kind` runs the tests in Docker")
    require(*PROGRAMS)
    if not CNI_PROGRAMS.joinpath("bridge").exists():
        raise CannotStart(
            f"not on the machine: {CNI_PROGRAMS}/bridge; `make e2e-tools` as root installs what is needed"
        )


class Node:
    """One of NODES. Its folder is beside that of the volumes, which all nodes see: a claim belongs to no node."""

    def __init__(self, name: str, folder: Path, network: Network, daemons: Daemons, programs: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.network = network
        self.cable = network.cable(NODES.index(name))
        self._volumes = folder / "volumes"
        self._daemons = daemons
        self._programs = programs

    @property
    def pid(self) -> int:
        """Return the process whose end is the node's end."""
        return self._daemons.pid(self.name)

    def enter(self, *namespaces: str) -> list[str]:
        """Return the words before a command that runs in these namespaces of the node; without names, in all."""
        chosen = namespaces or ("net", "mount", "pid")
        files = {"mount": "mnt", "pid": "pid_for_children"}
        paths = [f"--{each}=/proc/{self.pid}/ns/{files.get(each, each)}" for each in chosen]
        # Where process ids are other ones nsenter stays as the parent: a program ends with it.
        bound = ["setpriv", "--pdeathsig", "KILL", "--"] if "pid" in chosen else []
        return ["nsenter", *paths, "--", *bound]

    def run(self, *command: str) -> str:
        """Return the output of a command in the node. Raises CannotStart."""
        return _run(*self.enter(), *command)

    def begin(self) -> None:
        """Start the empty node, with its cable."""
        self._make_folders()
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._daemons.start(self.name, ["unshare", *namespaces, "--", str(self._programs / "pause")], signal.SIGKILL)
        wait_for(lambda: self._has_begun)
        self._mount()
        self._connect()

    @property
    def _has_begun(self) -> bool:
        with suppress(CannotStart):
            return "pause" in self.run("cat", "/proc/1/cmdline")
        return False

    def start_containerd(self) -> None:
        """Start containerd; return when it answers."""
        config = self.folder / "containerd.toml"
        config.write_text(_containerd_config(), encoding="utf-8")
        (self.folder / "cni-config" / "pods.conflist").write_text(json.dumps(_cni_config(self.cable.pods)), "utf-8")
        self._start("containerd", "containerd", f"--config={config}")
        wait_for(self._containerd_answers)

    def import_image(self, archive: Path) -> None:
        """Import an image from an archive, for pods that never pull."""
        self.run("ctr", "--namespace=k8s.io", "images", "import", str(archive))

    def images(self) -> list[str]:
        """Return the names of the imported images, without that of pods themselves."""
        known = self.run("ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
        return [name for name in known if name != PAUSE_IMAGE and not name.startswith("sha256:")]

    def kill_container(self, container: str) -> None:
        """Kill the first process of a running container with `kill -9`."""
        self.run("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)

    def start_kubelet(self, plane: ControlPlane, zone: str) -> None:
        """Start kubelet and kube-proxy without waiting."""
        self._config.write_text(json.dumps(self._kubelet_config(plane)), encoding="utf-8")
        for cgroup in self._cgroups():
            cgroup.mkdir(exist_ok=True)
        (self.folder / "resolv.conf").write_text("", encoding="ascii")
        kubelet = {
            "config": self._config,
            "kubeconfig": plane.kubeconfig_of(self.name),
            "hostname-override": self.name,
            "node-ip": self.cable.node,
            "node-labels": f"{ZONE_LABEL}={zone}",
            "cert-dir": self.folder / "kubelet" / "pki",
        }
        self._start("kubelet", str(self._programs / "kubelet"), *_flags(kubelet))
        proxy = {
            "kubeconfig": plane.kubeconfig_of("kube-proxy"),
            "hostname-override": self.name,
            "proxy-mode": "iptables",
            "cluster-cidr": self.network.pods,
            "conntrack-max-per-core": 0,
            "conntrack-min": 0,
            "conntrack-tcp-timeout-established": 0,
            "conntrack-tcp-timeout-close-wait": 0,
            "oom-score-adj": 0,
            "healthz-bind-address": f"{self.cable.node}:10256",
            "metrics-bind-address": "127.0.0.1:10249",
        }
        self._start("kube-proxy", str(self._programs / "kube-proxy"), *_flags(proxy))

    def start_dns(self, plane: ControlPlane) -> None:
        """Start DNS for the pods of all nodes without waiting."""
        corefile = self.folder / "Corefile"
        corefile.write_text(_corefile(self.network, plane.kubeconfig), encoding="utf-8")
        self._start("coredns", str(self._programs / "coredns"), "-conf", str(corefile))

    def await_ready(self, plane: ControlPlane) -> None:
        """Return when the API server has the node as ready. Raises DaemonFailed."""
        condition = '{.status.conditions[?(@.type=="Ready")].status}'

        def is_ready() -> bool:
            self._daemons.check(*(name for name in self._daemons.names() if name.startswith(self.name)))
            return plane.kubectl.ask("get", "node", self.name, f"-o=jsonpath={condition}").stdout == "True"

        wait_for(is_ready)

    def leave(self) -> None:
        """Remove its control groups and its folder, after all programs have ended."""
        # Without a file for kubelet they are those of another cluster, which took the number of one that was killed.
        for cgroup in self._cgroups() if self._config.exists() else ():
            for folder, _, _ in os.walk(cgroup, topdown=False):
                wait_for(partial(_removed, Path(folder)), seconds_max=10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, program: str, *command: str) -> None:
        self._daemons.start(f"{self.name}-{program}", [*self.enter(), *command])

    @property
    def _config(self) -> Path:
        return self.folder / "kubelet.json"

    def _make_folders(self) -> None:
        """Make the folders of the node, and empty ones of the machine where those of the node are mounted."""
        for name in OWN_FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._volumes.mkdir(exist_ok=True)
        MachineFolders().make(map(Path, (*OWN_FOLDERS.values(), CONTAINERD_FOLDER, VOLUMES_FOLDER)))

    def _mount(self) -> None:
        # Volumes that kubelet mounts must reach the containers' own mount namespaces.
        self.run("mount", "--make-rshared", "/")
        self.run("mount", "-t", "tmpfs", "tmpfs", "/run")
        # Images are thousands of small files: in memory they cost a second, on a slow disk half a minute.
        self.run("mount", "-t", "tmpfs", "tmpfs", CONTAINERD_FOLDER)
        for name in MACHINE_SETTINGS:
            own = self.folder / name.replace("/", ".")
            own.write_text(Path("/proc/sys", name).read_text(encoding="ascii"), encoding="ascii")
            self.run("mount", "--bind", str(own), f"/proc/sys/{name}")
        for name, target in OWN_FOLDERS.items():
            self.run("mount", "--bind", str(self.folder / name), target)
        self.run("mount", "--bind", str(self._volumes), VOLUMES_FOLDER)

    def _connect(self) -> None:
        cable = self.cable
        # Whatever remains of the cable when the node ends goes with the node's end of it.
        _run("ip", "link", "add", cable.device, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        _run("ip", "address", "add", f"{cable.host}/30", "dev", cable.device)
        _run("ip", "link", "set", cable.device, "up")
        self.run("ip", "address", "add", f"{cable.node}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.run("ip", "link", "set", device, "up")
        self.run("ip", "route", "add", "default", "via", cable.host)
        for target in (cable.pods, self.network.services) if cable.index == 0 else (cable.pods,):
            _run("ip", "route", "add", target, "via", cable.node)
        # For what comes from this node to others; the machine itself goes on forwarding nothing.
        Path("/proc/sys/net/ipv4/conf", cable.device, "forwarding").write_text("1", encoding="ascii")
        for setting in ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"):
            path = f"/proc/sys/{setting.replace('.', '/')}"
            self.run("sh", "-c", f"echo 1 > {path}")

    def _containerd_answers(self) -> bool:
        self._daemons.check(f"{self.name}-containerd")
        command = [*self.enter(), "ctr", "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _cgroups(self) -> list[Path]:
        """Return the node's folder in each hierarchy of control groups; in version 2 there is one."""
        hierarchies = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else sorted(CGROUPS.iterdir())
        name = f"barnabas-{self.cable.device}"
        return [path / name for path in hierarchies if path.is_dir() and not path.is_symlink()]

    def _kubelet_config(self, plane: ControlPlane) -> dict[str, object]:
        never = {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"}
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/barnabas-{self.cable.device}",
            "clusterDNS": [self.network.dns],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": [],
            "evictionHard": never,
            "failCgroupV1": False,
            "failSwapOn": False,
            # Images are imported, never pulled: one that is collected would not come back.
            "imageGCHighThresholdPercent": 100,
            # Without CAP_SYS_RESOURCE the score cannot be lowered.
            "oomScoreAdj": 0,
            "resolvConf": str(self.folder / "resolv.conf"),
            "volumePluginDir": str(self.folder / "kubelet" / "volume-plugins"),
        }


def _removed(cgroup: Path) -> bool:
    """Remove a control group; return False while the kernel keeps it for its last process."""
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _flags(values: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotStart(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _containerd_config() -> str:
    return f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE the score cannot be lowered.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "/etc/cni/net.d"
"""


def _cni_config(pods: str) -> dict[str, object]:
    ranges = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    # Hairpin: a pod reaches itself by its own service.
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ranges}
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _corefile(network: Network, kubeconfig: Path) -> str:
    return f"""
.:53 {{
    bind {network.dns}
    errors
    ready {network.dns}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods verified
        ttl 5
    }}
}}
"""
