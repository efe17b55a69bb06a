"""The operator's settings, which are read when the operator starts."""

from dataclasses import dataclass

from barnabas_operator.manifests.kube_object import NOBODY_ELSE, Neighbours
from barnabas_operator.planning.brokers.broker_security import addresses_between_brokers
from barnabas_operator.resources.cluster import Cluster


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The operator's settings. Without `namespaces` the operator watches all namespaces.

    `bootstrap` replaces the bootstrap address of every Cluster. A Cluster is reconciled `batch_s` after a change, every
    `busy_s` while a step is pending, and every `drift_s` otherwise. Consumer groups are reconciled every
    `group_look_s`, and active maintenance runs every `run_look_s`.

    Of all operators with the same `lease` (`NAMESPACE/NAME`), the leader acts; each has a different `identity`. Without
    a lease, the operator always acts.
    """

    broker_image: str
    namespaces: tuple[str, ...] = ()
    bootstrap: str = ""
    batch_s: float = 0.1
    busy_s: float = 0.5
    drift_s: float = 60.0
    group_look_s: float = 15.0
    run_look_s: float = 5.0
    lease: str = ""
    identity: str = ""
    neighbours: Neighbours = NOBODY_ELSE
    operator_image: str = "barnabas-operator:dev"
    """The operator's own image, which lag exporters and the pods of maintenance CronJobs also use."""
    jobs_image: str = "barnabas-jobs:dev"
    """The image of drivers and executors of maintenance jobs."""
    pull_secrets: tuple[str, ...] = ()
    """The image pull secrets of maintenance pods, which must exist in the namespace of these pods."""

    def bootstrap_of(self, cluster: Cluster) -> str:
        """Return the bootstrap addresses of a Cluster: the setting `bootstrap`, or those between its brokers."""
        return self.bootstrap or addresses_between_brokers(cluster)
