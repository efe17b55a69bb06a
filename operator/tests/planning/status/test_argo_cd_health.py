"""The health that Argo CD shows of each kind by our Lua checks (Argo CD runs Lua 5.1)."""

import re
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51
from ruamel.yaml import YAML

from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from barnabas_operator.resources.kind import OFFSETS_RESET, READY, ROLLING, Condition, ObjectMeta, Resource
from barnabas_operator.resources.maintenance_run import MaintenanceJob, MaintenanceJobSpec
from barnabas_operator.resources.schema_check import status_json
from barnabas_operator.resources.topic import Topic, TopicSpec
from barnabas_operator.resources.user import User, UserAuthentication, UserSpec

ROOT = Path(__file__).resolve().parents[4]
CHECKS = YAML(typ="safe").load(ROOT / "examples" / "kubernetes" / "argocd" / "argocd-cm.yaml")["data"]
PREFIX = "resource.customizations.health.barnabas.dev_"
GUIDE = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text()
ALREADY_SEEN, LATER = 3, 4
SPECS: dict[type[Resource], Any] = {
    Cluster: ClusterSpec(),
    Topic: TopicSpec(),
    ConsumerGroup: ConsumerGroupSpec(),
    MaintenanceJob: MaintenanceJobSpec(job="verify"),
    User: UserSpec(authentication=UserAuthentication(type="tls")),
}
BROKEN = {
    "BrokenSecret",
    "NoAuthority",
    "NoAuthorizer",
    "NoPassword",
    "ClusterNotFound",
    "DeadlineExceeded",
    "FoundSomething",
    "InvalidOptions",
    "JobFailed",
    "RunLost",
    "DeletionProtected",
    "InternalError",
    "InvalidConfig",
    "InvalidSpec",
    "InvalidTopicName",
    "KafkaError",
    "KubernetesError",
    "NotEnoughBrokers",
    "NotSupported",
    "PartitionsOffline",
    "PodsOverdue",
    "RecordsLost",
    "ResourceConflict",
    "VolumeCannotGrow",
}
"""The reasons that need an action of a user."""
WAITS = {
    "BeginsAgain",
    "BrokersNotReady",
    "BrokersStarting",
    "BrokersUnreachable",
    "ClaimNotBound",
    "UnderMinIsr",
    "WaitingForAddresses",
    "BrokerHoldsReplicas",
    "ReplicasMoving",
    "ClusterNotReady",
    "PodsEnding",
}
NOT_OF_READY = {
    "Paused",
    "Rolling",
    "LogsSetAside",
    "ClaimsDeleted",
    "ClaimsLarger",
    "NodesLeftOut",
    "VolumesResizing",
    "RebalanceProposed",
    "Rebalancing",
    "Drifted",
    "SecurityChanging",
    "WithinObjective",
    "OffsetsReset",
}
"""Conditions other than Ready, and their reasons."""


def condition(kind: str, status: Any, reason: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=f"{reason} it is", last_transition_time="now")


def health(*conditions: Condition, kind: type[Resource] = Cluster, generation: int = ALREADY_SEEN) -> Any:
    """Return the status and the message that Argo CD would show."""
    meta = ObjectMeta(name="main", generation=generation)
    said = KINDS[kind.__name__].status(conditions=conditions, observed_generation=ALREADY_SEEN)
    resource = kind(kind=kind.__name__, metadata=meta, spec=SPECS[kind], status=said if conditions else None)
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    as_table = lua.eval("function(text) return assert(loadstring('return ' .. text))() end")
    item = {"metadata": {"generation": generation}, **({"status": status_json(resource)} if conditions else {})}
    lua.globals().obj = as_table(as_lua(item))
    answer = lua.execute(CHECKS[f"{PREFIX}{resource.kind}"])
    return answer["status"], answer["message"]


def as_lua(value: Any) -> str:
    """Return JSON as the constructor of a Lua table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'["{name}"] = {as_lua(item)}' for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(as_lua, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


@pytest.mark.parametrize("kind", SPECS)
def test_a_ready_resource_is_healthy_once_its_generation_is_observed(kind: type[Resource]) -> None:
    ready = condition(READY, "True", "Reconciled")
    assert health(kind=kind) == ("Progressing", "waiting for the operator")
    assert health(ready, kind=kind) == ("Healthy", "Reconciled it is")
    assert health(ready, kind=kind, generation=LATER) == ("Progressing", "waiting for the operator")


@pytest.mark.parametrize("reason", sorted(BROKEN))
def test_a_reason_that_needs_an_action_is_degraded(reason: str) -> None:
    assert health(condition(READY, "False", reason)) == ("Degraded", f"{reason} it is")


@pytest.mark.parametrize("reason", sorted(WAITS))
def test_a_reason_that_passes_by_itself_is_progressing(reason: str) -> None:
    assert health(condition(READY, "False", reason)) == ("Progressing", f"{reason} it is")


def test_a_cluster_with_lost_records_or_deleted_claims_is_degraded() -> None:
    waits = condition(READY, "False", "BrokersNotReady")
    assert health(waits, condition("RecordsLost", "True", "RecordsLost"))[0] == "Degraded"
    assert health(waits, condition("RecordsLost", "False", "NothingLost"))[0] == "Progressing"
    assert health(condition(READY, "True", "Reconciled"), condition("ClaimsDeleted", "True", "x"))[0] == "Degraded"


def test_a_pause_is_suspended_and_a_roll_is_progressing_even_if_the_cluster_is_ready() -> None:
    ready = condition(READY, "True", "Reconciled")
    paused = condition("ReconciliationPaused", "True", "Paused")
    assert health(condition(READY, "Unknown", "Paused"), paused) == ("Suspended", "Paused it is")
    assert health(ready, condition(ROLLING, "True", "Restarting")) == ("Progressing", "Restarting it is")
    assert health(ready, condition(ROLLING, "True", "RollingPaused")) == ("Suspended", "RollingPaused it is")
    assert health(ready, condition(ROLLING, "False", "NoRestarts"))[0] == "Healthy"


def test_every_reason_of_the_guide_is_classified() -> None:
    """A reason is degraded or not; `argocd-cm.yaml` lists those that are."""
    table = GUIDE.partition("| reason | what it says |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert len(told) > 15
    assert told - BROKEN - WAITS - NOT_OF_READY == set()


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("True", "ResetDone", "Healthy"),
        ("False", "DryRun", "Healthy"),
        ("False", "WaitingForMembers", "Progressing"),
        ("False", "ScaledDown", "Progressing"),
        ("False", "GroupActive", "Degraded"),
        ("False", "GivenUp", "Degraded"),
    ],
)
def test_a_waiting_reset_is_progressing_and_one_that_needs_an_action_is_degraded(
    status: str, reason: str, shown: str
) -> None:
    ready, reset = condition(READY, "True", "Reconciled"), condition(OFFSETS_RESET, status, reason)
    assert health(ready, reset, kind=ConsumerGroup)[0] == shown
