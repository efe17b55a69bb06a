"""The operator's own client for a test's API server."""

from barnabas_kube.client import ApiClient
from barnabas_kube.kubeconfig import read_kubeconfig
from local_kubernetes.control_plane import ControlPlane


def api_client(plane: ControlPlane) -> ApiClient:
    """Return a client with the rights of the administrator; for `async with`."""
    return ApiClient(read_kubeconfig(plane.kubeconfig), "tests")
