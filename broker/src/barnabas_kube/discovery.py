"""Find the API server through a pod's service account or a kubeconfig file."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas_kube.access import Access, NoAccess, token_file

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_access(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access to the API server from the file in KUBECONFIG or, if unset, from the pod's ServiceAccount.

    Raise NoAccess if a file is invalid, or if KUBECONFIG is not set and this process does not run in a pod.
    """
    kubeconfig = environment.get("KUBECONFIG")
    if kubeconfig:
        from barnabas_kube.kubeconfig import read_kubeconfig  # YAML is slow to import, and pods do not need it.

        return read_kubeconfig(Path(kubeconfig))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccess(
            "KUBERNETES_SERVICE_HOST is not set, so this is not a pod; KUBECONFIG must name a kubeconfig file"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        tls = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
    except OSError as error:
        raise NoAccess(f"{service_account}/ca.crt: {error}") from error
    return Access(server, tls, token_file(service_account / "token"))
