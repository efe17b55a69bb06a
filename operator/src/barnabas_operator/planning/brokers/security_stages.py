"""The stages in which the security of a Cluster is turned on or off while it serves clients.

Brokers of neighbouring stages can connect to each other, so each rolling restart moves all brokers one stage forward or
back. A broker connects to the listener whose name is its own inter.broker.listener.name, at the port that the other
broker advertises. While a broker has a plaintext and a TLS listener for brokers, the TLS listener needs a name and a
port of its own. In the last rolling restart the plaintext listener ends, and the TLS listener gets its port, 9091.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_operator.planning.brokers.local_security import REPLICATION, is_secured
from barnabas_operator.planning.object_names import PASSING_PORT, REPLICATION_PORT, pod_host
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, SecurityStageName

REPLICATION_TLS: Final = "REPLICATION-TLS"
"""The name of the listener between brokers that requires certificates; no declared listener may have this name."""


class SecurityStage(IntEnum):
    """The use of TLS between brokers: none, offered, used, or required; SECURED also turns on authorization."""

    OPEN = 0
    OFFERED = 1
    USED = 2
    SECURED = 3


class StageRow(NamedTuple):
    """The listeners between brokers at one stage of turning security on or off, and whether brokers enforce ACLs."""

    in_clear: bool
    tls_port: int | None
    dials: str
    has_rights: bool


STAGES: Final[Mapping[SecurityStage, StageRow]] = {
    SecurityStage.OPEN: StageRow(True, None, REPLICATION, False),
    SecurityStage.OFFERED: StageRow(True, PASSING_PORT, REPLICATION, False),
    SecurityStage.USED: StageRow(True, PASSING_PORT, REPLICATION_TLS, False),
    SecurityStage.SECURED: StageRow(False, REPLICATION_PORT, REPLICATION_TLS, True),
}
_NAMES: Final[Mapping[SecurityStage, SecurityStageName | None]] = {
    SecurityStage.OPEN: None,
    SecurityStage.OFFERED: "Offered",
    SecurityStage.USED: "Used",
    SecurityStage.SECURED: "Secured",
}
_OF_NAMES: Final[Mapping[str | None, SecurityStage]] = {name: stage for stage, name in _NAMES.items()}


def wanted_stage(cluster: Cluster) -> SecurityStage:
    """Return the stage that the Cluster declares: SECURED or OPEN."""
    return SecurityStage.SECURED if is_secured(cluster) else SecurityStage.OPEN


def next_stage(present: SecurityStage, wanted: SecurityStage, of_pods: Collection[SecurityStage]) -> SecurityStage:
    """Return the next stage on the way from `present` to `wanted`, or `present` if some pod has not reached `present`.

    Brokers can connect to each other only if their stages differ by at most one.
    """
    further = SecurityStage(present + (wanted > present) - (wanted < present))
    return further if all(abs(each - further) <= 1 for each in of_pods) else present


def stage_name(stage: SecurityStage) -> SecurityStageName | None:
    """Return the name of a stage for the status, or None for the stage OPEN."""
    return _NAMES[stage]


def stage_in(text: str) -> SecurityStage:
    """Return the stage that a pod's annotation names, or OPEN if it names none."""
    return _OF_NAMES.get(text or None, SecurityStage.OPEN)


def reported_stage(cluster: Cluster) -> SecurityStage:
    """Return the stage in the status of the Cluster, or the declared stage if the Cluster has no status yet."""
    return _OF_NAMES[cluster.status.security_stage] if cluster.status is not None else wanted_stage(cluster)


def is_reached_by_tls(cluster: Cluster) -> bool:
    """True if the operator must connect to the brokers with TLS, and False if it must use plaintext."""
    return STAGES[reported_stage(cluster)].dials == REPLICATION_TLS


def is_passing(cluster: Cluster) -> bool:
    """True if the security stage in the status is not the stage that the spec asks for.

    The brokers may then be at different stages.
    """
    return reported_stage(cluster) is not wanted_stage(cluster)


def ports_between_brokers(cluster: Cluster) -> tuple[int, ...]:
    """Return the ports that the operator tries, in this order, to connect to a broker."""
    return (PASSING_PORT, REPLICATION_PORT) if reported_stage(cluster) is SecurityStage.USED else (REPLICATION_PORT,)


def addresses_between_brokers(cluster: Cluster) -> str:
    """Return the bootstrap addresses of all brokers, with the ports for connections between brokers."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
    hosts = [pod_host(name, namespace, number) for number in range(cluster.spec.brokers.replicas)]
    return ",".join(f"{host}:{port}" for port in ports_between_brokers(cluster) for host in hosts)


def refuse_passing_port(cluster: Cluster, stage: SecurityStage) -> Refusal | None:
    """Refuse a listener on `PASSING_PORT` while the Cluster changes from `stage` to its declared stage.

    Brokers use this port for replication during the change.
    """
    if stage is wanted_stage(cluster):
        return None
    for index, each in enumerate(cluster.spec.listeners):
        if each.port == PASSING_PORT:
            why = "which brokers use for replication while the security of the Cluster is being turned on or off"
            allowed = "another port; this port is allowed only if status.securityStage is Secured or absent"
            return Refusal(NOT_SUPPORTED, f"spec.listeners[{index}].port is {PASSING_PORT}, {why}; allowed: {allowed}")
    return None
