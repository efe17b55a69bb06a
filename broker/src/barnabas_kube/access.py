"""Where the API server is and who this process is to it: by a pod's service account, or by a kubeconfig file."""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoAccess(Exception):
    """What this process was given to reach an API server with is not there or does not do; the message says what."""


class Access(NamedTuple):
    """`read_token` is called before each request, since tokens change; it gives None where a certificate speaks."""

    server: str
    tls: ssl.SSLContext | None
    read_token: Callable[[], str | None]


def find_access(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """KUBECONFIG where it is set, else the service account of the pod. Raises NoAccess."""
    kubeconfig = environment.get("KUBECONFIG")
    if kubeconfig:
        from barnabas_kube.kubeconfig import read_kubeconfig  # YAML is large, and not for pods.

        return read_kubeconfig(Path(kubeconfig))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccess("KUBERNETES_SERVICE_HOST is not set, so this is no pod; KUBECONFIG must name a kubeconfig file")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        tls = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
    except OSError as error:
        raise NoAccess(f"{service_account}/ca.crt: {error}") from error
    return Access(server, tls, token_file(service_account / "token"))


def token_file(path: Path) -> Callable[[], str]:
    """Reads a token, which the kubelet replaces long before it ends. NoAccess when it is called."""

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NoAccess(f"{path}: {error}") from error

    return read
