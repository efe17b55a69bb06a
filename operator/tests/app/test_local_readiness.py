"""The condition Ready under `barnabas up` while a Cluster waits and some partitions are offline."""

from pathlib import Path

import pytest

from barnabas_operator.app.child_process import DataDir
from barnabas_operator.app.local_cluster import LocalCluster
from barnabas_operator.planning.cluster_state import ClusterState, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import READY, ObjectMeta, condition_of

CLUSTER = Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec())
OFFLINE = Trouble("flights", 0, (1,), (), offline=True)


@pytest.mark.parametrize(
    ("reason", "offline", "told"),
    [
        ("BrokerHoldsReplicas", False, "BrokerHoldsReplicas"),
        ("BrokerHoldsReplicas", True, "PartitionsOffline"),
        ("UnderReplicated", True, "PartitionsOffline"),
        ("InvalidConfig", True, "InvalidConfig"),
    ],
)
def test_ready_reports_offline_partitions_instead_of_a_wait(
    tmp_path: Path, reason: str, offline: bool, told: str
) -> None:
    state = ClusterState({0: None}, {}, troubles=(OFFLINE,) if offline else ())
    brokers = LocalCluster(DataDir(tmp_path), lambda _: None, lambda: None)
    status = brokers.status(CLUSTER, "2026-01-01T00:00:00Z", Refusal(reason, "as told"), state, None)
    ready = condition_of(status.conditions, READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", told)
