"""The NetworkPolicy peers for the operator's pods, and the labels by which Prometheus selects PodMonitors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_operator.planning.object_names import OPERATOR_NAME


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The namespace and Helm release of the operator's pods; both are empty for an operator outside of Kubernetes.

    `monitor_labels` are the labels by which Prometheus selects PodMonitors.
    """

    operator_namespace: str = ""
    release: str = ""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def operator_peers(self) -> list[dict[str, object]]:
        """The NetworkPolicy peers for the operator's pods, selected by namespace and labels."""
        if not self.operator_namespace:
            return []
        labels = {"app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": self.release}
        namespace = {"kubernetes.io/metadata.name": self.operator_namespace}
        return [{"namespaceSelector": {"matchLabels": namespace}, "podSelector": {"matchLabels": labels}}]


NOBODY_ELSE: Final = Neighbours()
