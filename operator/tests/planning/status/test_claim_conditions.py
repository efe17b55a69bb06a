"""The conditions of a Cluster about claims that were deleted while in use, and about claims that grow."""

from typing import Any

import pytest

from barnabas_operator.planning.brokers.pods import BrokerClaim, BrokerPod, BrokerSet, PodsState, Resize, resize_of
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.status.cluster_status import claim_conditions, resize_failure
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.kind import ObjectMeta

NOW = "2026-01-01T00:00:00Z"
CLUSTER = Cluster(metadata=ObjectMeta(name="main"), spec=ClusterSpec())
POD = BrokerPod(0, "main-broker-0", "u", "new", is_ready=True)
NO_SPACE = "rpc error: no space left in the pool"


def claim(number: int, *, is_ending: bool = False, resize: Resize | None = None) -> BrokerClaim:
    return BrokerClaim(f"volume-0-main-broker-{number}", "u", 0, number, "2Gi", None, False, is_ending, resize)


def told(*claims: BrokerClaim) -> list[tuple[str, str, str, str]]:
    pods = PodsState(BrokerSet(1, "new", {}), {0: POD}, claims=claims)
    found = claim_conditions(CLUSTER, NOW, pods)
    return [(each.type, each.status, each.reason, each.message) for each in found]


def test_claims_without_problems_cause_no_condition() -> None:
    assert told(claim(0)) == []


def test_a_claim_that_is_deleted_while_its_broker_uses_it_is_reported() -> None:
    ((kind, status, reason, message),) = told(claim(0, is_ending=True))
    assert (kind, status, reason) == ("ClaimsDeleted", "True", "InUse")
    assert message.startswith("claims were deleted while in use: volume-0-main-broker-0. ")


def test_a_claim_that_is_larger_than_declared_is_reported() -> None:
    declared = Cluster(
        metadata=CLUSTER.metadata, spec=ClusterSpec(storage=Storage(volumes=(Volume(id=0, size="1Gi"),)))
    )
    pods = PodsState(BrokerSet(1, "new", {}), {0: POD}, claims=[claim(0)])
    ((found),) = claim_conditions(declared, NOW, pods)
    assert (found.type, found.status, found.reason) == ("ClaimsLarger", "True", "GrownByAnother")
    assert "volume-0-main-broker-0 (2Gi)" in found.message


def test_a_deleted_claim_that_no_broker_uses_is_not_reported() -> None:
    assert told(claim(1, is_ending=True)) == []


def test_growing_claims_are_reported_and_a_failed_one_decides_the_reason() -> None:
    growing, failed = (
        Resize("Resizing", "the claim requests 2Gi, but its volume has 1Gi"),
        Resize("ResizeFailed", f"has 1Gi: {NO_SPACE}"),
    )
    ((kind, status, reason, message),) = told(claim(0, resize=growing), claim(1, resize=failed))
    assert (kind, status, reason) == ("VolumesResizing", "True", "ResizeFailed")
    assert (
        "volume-0-main-broker-0: the claim requests 2Gi, but its volume has 1Gi, volume-0-main-broker-1: has 1Gi"
        in message
    )
    pods = PodsState(None, claims=[claim(0, resize=growing), claim(1, resize=failed)])
    assert resize_failure(pods) == Refusal("VolumeCannotGrow", f"volume-0-main-broker-1: has 1Gi: {NO_SPACE}")
    assert resize_failure(PodsState(None, claims=[claim(0, resize=growing)])) is None


def asking(has: str | None, *conditions: tuple[str, str], state: str = "") -> dict[str, Any]:
    status = {
        "capacity": {"storage": has} if has is not None else {},
        "conditions": [{"type": kind, "status": "True", "message": message} for kind, message in conditions],
        "allocatedResourceStatuses": {"storage": state} if state else {},
    }
    return {"spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": status}


@pytest.mark.parametrize(
    ("found", "resize"),
    [
        (asking("2Gi"), None),
        (asking(None), None),
        (asking("1Gi"), Resize("Resizing", "the claim requests 2Gi, but its volume has 1Gi")),
        (asking("1Gi", ("Resizing", "")), Resize("Resizing", "the claim requests 2Gi, but its volume has 1Gi")),
        (
            asking("1Gi", ("ControllerResizeError", NO_SPACE)),
            Resize(
                "ResizeFailed", f"the claim requests 2Gi, but its volume has 1Gi: ControllerResizeError: {NO_SPACE}"
            ),
        ),
        (
            asking("1Gi", state="NodeResizeInfeasible"),
            Resize("ResizeFailed", "the claim requests 2Gi, but its volume has 1Gi: NodeResizeInfeasible"),
        ),
        (
            asking("1Gi", ("FileSystemResizePending", "Waiting for user to (re-)start a pod")),
            Resize(
                "FileSystemResizePending",
                "the claim requests 2Gi, but its volume has 1Gi: the file system grows when the node mounts "
                "the volume; if the size does not change, restart the "
                "broker: kubectl annotate pod main-broker-0 barnabas.dev/manual-rolling-update=true",
            ),
        ),
    ],
)
def test_the_progress_of_a_resize_is_read_from_the_status_of_the_claim(
    found: dict[str, Any], resize: Resize | None
) -> None:
    assert resize_of(found, "main-broker-0") == resize
