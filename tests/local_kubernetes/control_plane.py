"""etcd, the API server, the controllers and the scheduler as processes of this machine; needs no root.

plane = ControlPlane(folder, Daemons(folder / "run", outlive=False), programs())
plane.start_api()
plane.kubectl("get", "namespaces")
"""

import json
import secrets
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from harness.deadline import wait_for
from harness.server_process import free_port
from local_kubernetes.certificates import Authority
from local_kubernetes.daemons import Daemons
from local_kubernetes.kube_requests import KubeRequests
from local_kubernetes.kubectl import Kubectl
from local_kubernetes.whole_file import write_whole

CONTROLLERS: Final = ("kube-scheduler", "kube-controller-manager")
NODES: Final = ("node-1", "node-2", "node-3", "node-4")
"""The names of nodes that a cluster may have: the API server reads tokens only when it starts."""
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    **{name: (f"system:node:{name}", "system:nodes") for name in NODES},
}
"""The users that have a token for the API server: (user, group)."""


LESS_COLLECTING: Final = ("env", "GOGC=400")
"""An environment that costs 150 MB more, and a fifth less CPU until an API server is ready."""


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of the API server and of services; the default is for a cluster without pods."""

    address: str = "127.0.0.1"
    services: str = "10.96.0.0/24"
    first_service: str = "10.96.0.1"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Free ports and random secrets, drawn once for the life of a cluster."""

    port: int
    etcd_port: int
    etcd_peer_port: int
    tokens: dict[str, str]


def _chosen(path: Path) -> Chosen:
    """Return the values in this file, drawn the first time: another process can then go on with the cluster."""
    if path.exists():
        return Chosen(**json.loads(path.read_text(encoding="utf-8")))
    tokens = {name: secrets.token_hex(16) for name in USERS}
    chosen = Chosen(free_port(), free_port(), free_port(), tokens)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(chosen)))
    return chosen


class ControlPlane:
    """The control plane of one cluster; all its files are below `folder`. Extra `flags` go to the API server."""

    def __init__(
        self, folder: Path, daemons: Daemons, programs: Path, place: Place = Place(), flags: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.daemons = daemons
        self.programs = programs
        self.place = place
        self._flags = flags
        self._chosen = _chosen(folder / "chosen.json")
        self._enter: Sequence[str] | None = None

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return f"https://{self.place.address}:{self._chosen.port}"

    @property
    def etcd_url(self) -> str:
        """Return the URL of etcd, with its metrics at `/metrics`."""
        return f"http://127.0.0.1:{self._chosen.etcd_port}"

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of the administrator."""
        return self.folder / "kubeconfig"

    @cached_property
    def authority(self) -> Authority:
        """Return the authority that the cluster trusts."""
        return Authority(self.folder / "pki")

    def start_api(self) -> None:
        """Start etcd and the API server; return when `/readyz` says so. Raises DaemonFailed."""
        self._write_files()
        self.start_etcd()
        self.start_api_server()
        self.await_ready()

    def start_etcd(self) -> None:
        """Start etcd, also after it was stopped: its data are kept."""
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._chosen.etcd_port, self._chosen.etcd_peer_port))
        flags = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
        self._start("etcd", flags)

    def start_api_server(self) -> None:
        """Start the API server, also after it was stopped, and do not wait."""
        # It would wait a minute for its watches to end; an outage does not.
        self._start("kube-apiserver", self._api_flags(), *self._flags, enter=LESS_COLLECTING, end=signal.SIGKILL)

    def stop_api_server(self) -> None:
        """Stop the API server: all connections break, watches too. etcd goes on."""
        self.daemons.stop("kube-apiserver")

    def start_controllers(self, enter: Sequence[str] = ()) -> None:
        """Start the scheduler, and the controller manager by a command that enters the place of hostpath volumes."""
        self._enter = enter
        pki = self.folder / "pki"
        flags = {
            "kubeconfig": self.kubeconfig_of("kube-controller-manager"),
            "service-account-private-key-file": pki / "accounts.key",
            "root-ca-file": self.authority.certificate,
            "cluster-signing-cert-file": self.authority.certificate,
            "cluster-signing-key-file": self.authority.identity.key,
            "use-service-account-credentials": "true",
            "enable-hostpath-provisioner": "true",
            "leader-elect": "false",
            "secure-port": "0",
        }
        self._start("kube-controller-manager", flags, enter=enter)
        scheduler = {
            "kubeconfig": self.kubeconfig_of("kube-scheduler"),
            "leader-elect": "false",
            "secure-port": "0",
            # A claim that is bound while its pod is looked at goes unnoticed; the scheduler's own 5 minutes are a lot.
            "pod-max-in-unschedulable-pods-duration": "20s",
        }
        self._start("kube-scheduler", scheduler)

    def stop_all(self) -> None:
        """Stop everything; nodes and pods go on."""
        for name in (*CONTROLLERS, "kube-apiserver", "etcd"):
            self.daemons.stop(name)

    def start_again(self) -> None:
        """Start all that `stop_all` has stopped except etcd; return when the API server serves. Raises DaemonFailed."""
        self.start_api_server()
        self.await_ready()
        if self._enter is not None:
            self.start_controllers(self._enter)

    def end_outage(self) -> None:
        """End an outage after `stop_api_server`; return when the API server serves. Raises DaemonFailed.

        Controllers that elect a leader, as in clusters by kubeadm, end after 10 s without the API server, and
        start again. These elect none. Left alone, the controller manager would use old EndpointSlices for
        more than a minute.
        """
        for name in CONTROLLERS:
            self.daemons.stop(name)
        self.start_again()

    def await_ready(self) -> None:
        """Return when the API server serves. Raises DaemonFailed."""
        wait_for(self._is_ready)

    @property
    def kubectl(self) -> Kubectl:
        """Return the administrator's kubectl."""
        return Kubectl(self.programs / "kubectl", self.kubeconfig)

    @cached_property
    def requests(self) -> KubeRequests:
        """Return the administrator's client for frequent requests."""
        return KubeRequests(self.url, self._chosen.tokens["admin"], self._trust)

    def kubeconfig_of(self, user: str) -> Path:
        """Return the kubeconfig with which one of USERS connects to the API server."""
        return self.kubeconfig if user == "admin" else self.folder / f"{user}.kubeconfig"

    def _is_ready(self) -> bool:
        self.daemons.check("etcd", "kube-apiserver")
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._chosen.tokens['admin']}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._trust) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def _start(
        self,
        name: str,
        flags: dict[str, object],
        *more: str,
        enter: Sequence[str] = (),
        end: signal.Signals = signal.SIGTERM,
    ) -> None:
        given = [f"--{flag}={value}" for flag, value in flags.items()]
        self.daemons.start(name, [*enter, str(self.programs / name), *given, *more], end)

    def _api_flags(self) -> dict[str, object]:
        pki = self.folder / "pki"
        loopback = self.place.address.startswith("127.")
        return {
            "bind-address": self.place.address,
            # It must not be a loopback address; 192.0.2.1 is nobody's (RFC 5737), and nobody reads it then.
            "advertise-address": "192.0.2.1" if loopback else self.place.address,
            "secure-port": self._chosen.port,
            "endpoint-reconciler-type": "none" if loopback else "lease",
            "etcd-servers": f"http://127.0.0.1:{self._chosen.etcd_port}",
            "authorization-mode": "Node,RBAC",
            "token-auth-file": pki / "tokens.csv",
            "client-ca-file": self.authority.certificate,
            "tls-cert-file": pki / "api.crt",
            "tls-private-key-file": pki / "api.key",
            "kubelet-client-certificate": pki / "kubelet-client.crt",
            "kubelet-client-key": pki / "kubelet-client.key",
            # Nodes' names are in no DNS.
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "accounts.crt",
            "service-account-signing-key-file": pki / "accounts.key",
            "service-cluster-ip-range": self.place.services,
            # Above the ports that `free_port` gives.
            "service-node-port-range": "30000-32767",
            "allow-privileged": "true",
            "enable-admission-plugins": "NodeRestriction",
            "shutdown-delay-duration": "0s",
        }

    def _write_files(self) -> None:
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        addresses = [self.place.address, self.place.first_service]
        alternatives = [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
        self.authority.issue("api", "/CN=kube-apiserver", alternatives)
        self.authority.issue("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self.authority.issue("accounts", "/CN=service-accounts")
        lines = [f'{self._chosen.tokens[name]},{user},{name},"{group}"' for name, (user, group) in USERS.items()]
        (self.folder / "pki" / "tokens.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name in USERS:
            self.kubeconfig_of(name).write_text(self._kubeconfig_text(name), encoding="utf-8")

    def _kubeconfig_text(self, user: str) -> str:
        """Return a kubeconfig as JSON, which is YAML, too."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        context = {"cluster": "barnabas-e2e", "user": user}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "barnabas-e2e", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": self._chosen.tokens[user]}}],
                "contexts": [{"name": "barnabas-e2e", "context": context}],
                "current-context": "barnabas-e2e",
            },
            indent=1,
        )
