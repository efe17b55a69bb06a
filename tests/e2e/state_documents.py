"""Gives brokers what they need to keep their metadata in an API server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY

DEFINITION: Final = (
    Path(__file__).parents[2] / "helm" / "barnabas" / "crd-files" / "statedocuments.internal.barnabas.dev.yaml"
)


def define_state_documents(plane: ControlPlane) -> None:
    """Apply the CRD of StateDocuments; return when the API server serves it. It may be called again."""
    plane.kubectl("apply", "-f", str(DEFINITION))
    plane.kubectl("wait", "--for=condition=Established", PATIENTLY, "-f", str(DEFINITION))


def environment_of_broker(plane: ControlPlane, number: int) -> Mapping[str, str]:
    """Return the environment of a broker's process that is alone, as in a pod of its own."""
    return {"KUBECONFIG": str(plane.kubeconfig), "POD_UID": f"pod-{number}"}
