"""The stages by which an open Cluster becomes a secured one under traffic, and back. Pure.

Brokers of neighbouring stages reach each other, so a roll goes from one stage to the next, in either direction. A
broker connects to the listener of the other whose name is its own inter.broker.listener.name, at the port that the
other advertises. So the listener with certificates has a name of its own, and moves to 9091 in the last roll.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_operator.planning.brokers.local_security import REPLICATION, is_secured
from barnabas_operator.planning.object_names import PASSING_PORT, REPLICATION_PORT
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, SecurityStageName

REPLICATION_TLS: Final = "REPLICATION-TLS"
"""The listener between brokers that asks for certificates. No listener of a Cluster can have this name."""


class SecurityStage(IntEnum):
    """The stage of security that a broker has, or all brokers of a Cluster have."""

    OPEN = 0
    OFFERED = 1
    USED = 2
    SECURED = 3


class StageRow(NamedTuple):
    """The listeners between brokers at one stage, and whether rights hold: a broker in clear would have none."""

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
    """Return the stage at which the Cluster is as declared."""
    return SecurityStage.SECURED if is_secured(cluster) else SecurityStage.OPEN


def next_stage(present: SecurityStage, wanted: SecurityStage, of_pods: Collection[SecurityStage]) -> SecurityStage:
    """Return the stage for the pods that are made from now on: one further, once no broker is more than one behind."""
    further = SecurityStage(present + (wanted > present) - (wanted < present))
    return further if all(abs(each - further) <= 1 for each in of_pods) else present


def stage_name(stage: SecurityStage) -> SecurityStageName | None:
    """Return the name of a stage for the status; None for an open Cluster."""
    return _NAMES[stage]


def stage_in(text: str) -> SecurityStage:
    """Return the stage in an annotation of the brokers' pods; open without one."""
    return _OF_NAMES.get(text or None, SecurityStage.OPEN)


def reported_stage(cluster: Cluster) -> SecurityStage:
    """Return the stage that all brokers have reached, by the status; without one, the Cluster is new."""
    return _OF_NAMES[cluster.status.security_stage] if cluster.status is not None else wanted_stage(cluster)


def is_reached_by_tls(cluster: Cluster) -> bool:
    """True if the operator reaches all brokers with its certificate, else it reaches all in clear."""
    return STAGES[reported_stage(cluster)].dials == REPLICATION_TLS


def is_passing(cluster: Cluster) -> bool:
    """True if brokers may be of different stages."""
    return reported_stage(cluster) is not wanted_stage(cluster)


def ports_between_brokers(cluster: Cluster) -> tuple[int, ...]:
    """Return the ports at which the operator tries each broker, as `is_reached_by_tls` tells how."""
    return (PASSING_PORT, REPLICATION_PORT) if reported_stage(cluster) is SecurityStage.USED else (REPLICATION_PORT,)


def refuse_passing_port(cluster: Cluster, stage: SecurityStage) -> Refusal | None:
    """Return the refusal of a listener at the port that brokers need on the way from `stage` to the declared one."""
    if stage is wanted_stage(cluster):
        return None
    for index, each in enumerate(cluster.spec.listeners):
        if each.port == PASSING_PORT:
            why = "which brokers use for replication while an open Cluster becomes secured, or a secured one open"
            allowed = "another port, until status.securityStage is Secured or missing"
            return Refusal(NOT_SUPPORTED, f"spec.listeners[{index}].port is {PASSING_PORT}, {why}; allowed: {allowed}")
    return None
