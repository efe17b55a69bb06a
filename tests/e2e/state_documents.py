"""What brokers need of an API server to keep their metadata there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY

DEFINITION: Final = Path(__file__).parents[2] / "crds" / "statedocuments.internal.barnabas.dev.yaml"


def define_state_documents(plane: ControlPlane) -> None:
    """Returns when the API server takes them; may be called again."""
    plane.kubectl("apply", "-f", str(DEFINITION))
    plane.kubectl("wait", "--for=condition=Established", PATIENTLY, "-f", str(DEFINITION))


def environment_of_broker(plane: ControlPlane, number: int) -> Mapping[str, str]:
    """For a process that is as alone as in a pod of its own."""
    return {"KUBECONFIG": str(plane.kubeconfig), "POD_UID": f"pod-{number}"}
