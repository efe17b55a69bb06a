"""The operator's settings, read when it starts."""

from dataclasses import dataclass
from typing import Final

from barnabas_operator.manifests.neighbours import NOBODY_ELSE, Neighbours
from barnabas_operator.planning.brokers.security_stages import ports_between_brokers
from barnabas_operator.planning.object_names import pod_host
from barnabas_operator.resources.cluster import Cluster

BATCH_S: Final = 0.1
DRIFT_S: Final = 60.0
BUSY_S: Final = 0.5
GROUP_LOOK_S: Final = 15.0
RUN_LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """`namespaces`: where resources are looked for, all where empty. `bootstrap` replaces the address of every Cluster.

    A round follows a change after `batch_s`, the one before after `busy_s` while there is something to wait for, and
    after `drift_s` at the latest. Consumer groups are looked at every `group_look_s`, and
    runs of maintenance that are under way every `run_look_s`.

    Of all operators with the same `lease` (`NAMESPACE/NAME`) one acts; each has an `identity` of its own. Without a
    lease this one asks nobody.
    """

    broker_image: str
    namespaces: tuple[str, ...] = ()
    bootstrap: str = ""
    batch_s: float = BATCH_S
    busy_s: float = BUSY_S
    drift_s: float = DRIFT_S
    group_look_s: float = GROUP_LOOK_S
    run_look_s: float = RUN_LOOK_S
    lease: str = ""
    identity: str = ""
    neighbours: Neighbours = NOBODY_ELSE
    operator_image: str = "barnabas-operator:dev"
    """The image of lag exporters, which the brokers' image does not contain."""
    jobs_image: str = "barnabas-jobs:dev"
    """The image of drivers and executors of maintenance jobs."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets with which pods of maintenance pull their images, in their own namespace."""

    def bootstrap_of(self, cluster: Cluster) -> str:
        """Every broker's own name, through the listener that all brokers have."""
        name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
        hosts = [pod_host(name, namespace, number) for number in range(cluster.spec.brokers.replicas)]
        ports = ports_between_brokers(cluster)
        return self.bootstrap or ",".join(f"{host}:{port}" for port in ports for host in hosts)
