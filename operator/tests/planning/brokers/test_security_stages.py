"""Three brokers change from open to secured and back, in every state that restarts and edits can cause."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from barnabas_operator.manifests.kube_object import NOBODY_ELSE, network_policy
from barnabas_operator.planning.brokers.broker_security import (
    SecurityStage,
    is_reached_by_tls,
    ports_between_brokers,
    stage_name,
)
from barnabas_operator.planning.brokers.cluster_checks import refuse_change
from barnabas_operator.planning.brokers.pod_properties import pod_properties, restart_hash
from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, ExternalAccess, PodsState
from barnabas_operator.planning.status.cluster_events import cluster_events
from barnabas_operator.planning.status.cluster_status import Findings, cluster_status
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, ClusterStatus, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.schema_check import status_json
from barnabas_operator.resources.security import Authentication, Authorization

OPEN, OFFERED, USED, SECURED = SecurityStage
PLAIN = Listener(name="plain")
SAFE = Listener(name="safe", port=9094, tls=True, authentication=Authentication(type="scram-sha-512"))


def cluster(*listeners: Listener, authorization: Authorization | None = None) -> Cluster:
    spec = ClusterSpec(listeners=listeners, authorization=authorization)
    return Cluster(metadata=ObjectMeta(name="one", namespace="air"), spec=spec, status=ClusterStatus())


DECLARED_OPEN, DECLARED_SECURED = cluster(PLAIN), cluster(SAFE, authorization=Authorization())


class State(NamedTuple):
    """The stage of the pod template, and of the pods that run."""

    template: SecurityStage
    pods: tuple[SecurityStage, ...]

    @property
    def found(self) -> PodsState:
        broker_set = BrokerSet(len(self.pods), "new", {}, stage=self.template)
        made = {
            number: BrokerPod(number, f"one-broker-{number}", "", stage_text(stage), is_ready=True, stage=stage)
            for number, stage in enumerate(self.pods)
        }
        return PodsState(broker_set, made)

    def decided(self, declared: Cluster) -> "State":
        return self._replace(template=self.found.next_stage(declared))

    def restarted(self, number: int) -> "State":
        return self._replace(pods=tuple(self.template if at == number else it for at, it in enumerate(self.pods)))


def stage_text(stage: SecurityStage) -> str:
    return stage_name(stage) or "open"


def states_after(first: State, *declared: Cluster) -> set[State]:
    """Return every state that follows from decisions of operators that may die, and from restarts in any order."""
    found, to_look_at = {first}, [first]
    while to_look_at:
        state = to_look_at.pop()
        after = {state.decided(each) for each in declared} | {state.restarted(number) for number in range(3)}
        to_look_at += after - found
        found |= after
    return found


REACHABLE = states_after(State(OPEN, (OPEN,) * 3), DECLARED_OPEN, DECLARED_SECURED)


def settings(stage: SecurityStage, declared: Cluster) -> dict[str, str]:
    return pod_properties(declared, 1, ExternalAccess(stage=stage))


def endpoints(stage: SecurityStage, declared: Cluster = DECLARED_OPEN) -> dict[str, tuple[int, str]]:
    """Return port and protocol of each listener that a broker advertises."""
    found = settings(stage, declared)
    protocols = dict(each.split(":") for each in found["listener.security.protocol.map"].split(","))
    advertised = (each.split("://") for each in found["advertised.listeners"].split(","))
    return {name: (int(address.rpartition(":")[2]), protocols[name]) for name, address in advertised}


def pairs(states: set[State]) -> Iterator[tuple[SecurityStage, SecurityStage]]:
    for state in states:
        yield from product({*state.pods, state.template}, repeat=2)


def test_any_two_brokers_reach_each_other_in_every_state_of_the_change() -> None:
    for one, other in set(pairs(REACHABLE)):
        dialed = settings(one, DECLARED_OPEN)["inter.broker.listener.name"]
        assert endpoints(one)[dialed][1] == endpoints(other)[dialed][1], (one, other)


def test_the_operator_reaches_all_brokers_in_every_state_even_if_the_status_lags() -> None:
    for state in REACHABLE:
        for reported in (state, *(state.decided(each) for each in (DECLARED_OPEN, DECLARED_SECURED))):
            status = ClusterStatus(security_stage=stage_name(min(reported.found.stages)))
            seen = replace(DECLARED_OPEN, status=status)
            wanted = "SSL" if is_reached_by_tls(seen) else "PLAINTEXT"
            for pod in state.pods:
                offered = {address for address in endpoints(pod).values() if address[0] in (9090, 9091)}
                assert any((port, wanted) in offered for port in ports_between_brokers(seen)), (state, pod)


@pytest.mark.parametrize(("declared", "last"), [(DECLARED_OPEN, OPEN), (DECLARED_SECURED, SECURED)])
def test_every_state_converges_to_the_last_declared_security(declared: Cluster, last: SecurityStage) -> None:
    for first in REACHABLE:
        state, restarts = first, 0
        while state != State(last, (last,) * 3):
            state = state.decided(declared)
            behind = next((number for number, stage in enumerate(state.pods) if stage is not state.template), None)
            if behind is not None:
                state, restarts = state.restarted(behind), restarts + 1
        assert restarts <= 3 * 3 + 2


def rolls(state: State, declared: Cluster) -> list[SecurityStage]:
    """Return the stage of each roll, of which one begins when the one before has ended."""
    stages = []
    while (template := state.decided(declared).template) is not state.template:
        stages.append(template)
        state = State(template, (template,) * len(state.pods))
    return stages


def test_security_is_turned_on_in_three_rolls_and_off_in_three_rolls() -> None:
    hashes = [restart_hash(DECLARED_SECURED, ExternalAccess(stage=stage)) for stage in (OFFERED, USED, SECURED)]
    assert len(set(hashes)) == len(hashes)
    opening = [restart_hash(DECLARED_OPEN, ExternalAccess(stage=stage)) for stage in (USED, OFFERED, OPEN)]
    assert len(set(opening)) == len(opening)
    assert rolls(State(OPEN, (OPEN,) * 3), DECLARED_SECURED) == [OFFERED, USED, SECURED]
    assert rolls(State(SECURED, (SECURED,) * 3), DECLARED_OPEN) == [USED, OFFERED, OPEN]
    assert opening[-1] == restart_hash(DECLARED_OPEN, ExternalAccess())
    assert hashes[-1] == restart_hash(DECLARED_SECURED, ExternalAccess())


TABLE = {
    OPEN: ({"REPLICATION": (9091, "PLAINTEXT")}, "REPLICATION"),
    OFFERED: ({"REPLICATION": (9091, "PLAINTEXT"), "REPLICATION-TLS": (9090, "SSL")}, "REPLICATION"),
    USED: ({"REPLICATION": (9091, "PLAINTEXT"), "REPLICATION-TLS": (9090, "SSL")}, "REPLICATION-TLS"),
    SECURED: ({"REPLICATION-TLS": (9091, "SSL")}, "REPLICATION-TLS"),
}


@pytest.mark.parametrize("stage", SecurityStage)
def test_each_stage_has_its_listeners_between_brokers(stage: SecurityStage) -> None:
    of_clients = {"PLAIN": (9092, "PLAINTEXT")}
    assert (endpoints(stage), settings(stage, DECLARED_OPEN)["inter.broker.listener.name"]) == (
        TABLE[stage][0] | of_clients,
        TABLE[stage][1],
    )


def test_both_listeners_of_clients_are_advertised_from_the_first_step_on() -> None:
    both = cluster(PLAIN, SAFE)
    for stage in (OFFERED, USED, SECURED):
        assert endpoints(stage, both).items() >= {"PLAIN": (9092, "PLAINTEXT"), "SAFE": (9094, "SASL_SSL")}.items()


def test_acls_are_enforced_only_from_the_last_step_on() -> None:
    assert ["super.users" in settings(each, DECLARED_SECURED) for each in (OFFERED, USED, SECURED)] == [
        False,
        False,
        True,
    ]


def test_the_next_stage_ignores_missing_pods_and_follows_pods_without_a_statefulset() -> None:
    state = State(OFFERED, (OFFERED, OFFERED)).found
    assert state.next_stage(DECLARED_SECURED) is USED
    orphans = PodsState(None, State(USED, (USED, OFFERED)).found.pods)
    assert orphans.next_stage(DECLARED_SECURED) is USED
    assert PodsState(None).next_stage(DECLARED_SECURED) is SECURED


def said(state: State, declared: Cluster, before: ClusterStatus | None = None) -> tuple[list[str], list[str]]:
    """Return reason and message of the condition, and the Events."""
    known = replace(declared, status=before)
    status = cluster_status(known, "2026-01-01T00:00:00Z", None, Findings(state.found))
    shown = [each for each in status.conditions if each.type == "SecurityChanging"]
    was = status_json(known) if before is not None else {}
    events = [reason for _, reason, _ in cluster_events(replace(known, status=status), was)]
    return [text for each in shown for text in (each.reason, each.message)], events


def test_a_condition_reports_each_step_and_its_direction() -> None:
    assert said(State(OFFERED, (OPEN,) * 3), DECLARED_SECURED)[0] == [
        "OfferingTls",
        "step 1 of 3 to a secured Cluster: brokers also accept TLS connections from each other, at port 9090",
    ]
    assert said(State(USED, (SECURED,) * 3), DECLARED_OPEN)[0] == [
        "OpeningPlaintext",
        "step 1 of 3 to an open Cluster: brokers accept plain text at port 9091, and ACLs are no longer enforced",
    ]
    assert said(State(SECURED, (SECURED,) * 3), DECLARED_SECURED)[0] == []


def test_events_report_each_step_once_and_the_end() -> None:
    first = State(OFFERED, (OPEN,) * 3)
    assert "OfferingTls" in said(first, DECLARED_SECURED)[1]
    before = cluster_status(DECLARED_SECURED, "2026-01-01T00:00:00Z", None, Findings(first.found))
    assert "OfferingTls" not in said(first.restarted(0), DECLARED_SECURED, before)[1]
    assert "SecurityChanged" in said(State(SECURED, (SECURED,) * 3), DECLARED_SECURED, before)[1]


def test_the_network_policy_opens_both_replication_ports_during_the_change() -> None:
    arrived = replace(DECLARED_SECURED, status=ClusterStatus(security_stage="Secured"))
    for declared, ports in ((DECLARED_SECURED, [9091, 9090]), (arrived, [9091]), (DECLARED_OPEN, [9091])):
        rule = network_policy(declared, NOBODY_ELSE)["spec"]["ingress"][0]
        assert [each["port"] for each in rule["ports"]] == ports


def test_a_listener_may_not_use_the_port_that_brokers_need_during_the_change() -> None:
    taken = cluster(PLAIN, replace(SAFE, port=9090))
    refusal = refuse_change(DECLARED_OPEN, taken, in_pods=True)
    assert refusal is not None
    assert "spec.listeners[1].port is 9090, which brokers use for replication while" in refusal.message
    arrived = replace(DECLARED_SECURED, status=ClusterStatus(security_stage="Secured"))
    assert refuse_change(arrived, taken, in_pods=True) is None
    assert refuse_change(DECLARED_OPEN, cluster(replace(PLAIN, port=9090)), in_pods=True) is None
