"""The security settings of all pods, which fulfil the Pod Security Standard `restricted`."""

from collections.abc import Mapping
from typing import Any, Final

USER_ID: Final = 10001
FOR_ITS_GROUP: Final = 0o440
"""The mode of secret files in pods with an fsGroup."""

POD_SECURITY: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
