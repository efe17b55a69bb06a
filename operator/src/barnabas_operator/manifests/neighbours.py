"""The other users of all Clusters' pods: the operator's own pods, and a Prometheus."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_operator.planning.object_names import OPERATOR_NAME


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The namespace and the release of the operator's pods; empty where it runs outside of Kubernetes.

    `monitor_labels` are those by which a Prometheus finds the PodMonitors that it shall read.
    """

    operator_namespace: str = ""
    release: str = ""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def operator_peers(self) -> list[dict[str, object]]:
        """The operator's pods, as a NetworkPolicy names them: a label alone could be anybody's."""
        if not self.operator_namespace:
            return []
        labels = {"app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": self.release}
        namespace = {"kubernetes.io/metadata.name": self.operator_namespace}
        return [{"namespaceSelector": {"matchLabels": namespace}, "podSelector": {"matchLabels": labels}}]


NOBODY_ELSE: Final = Neighbours()
