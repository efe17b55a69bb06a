"""The reason why a pod or its claim is not created, from the Events of Kubernetes."""

from typing import Any

from barnabas_operator.planning.status.cluster_events import why_not_bound, why_not_made

QUOTA = 'pods "a-broker-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'


def event(reason: str, message: str, second: int, about: str = "a-broker") -> dict[str, Any]:
    told = {"lastTimestamp": f"2026-11-01T10:00:{second:02}Z"} if second % 2 else {}
    newer = {"eventTime": f"2026-11-01T10:00:{second:02}.123456Z", "lastTimestamp": None}
    return {"reason": reason, "message": message, "involvedObject": {"name": about}, "metadata": {}, **(told or newer)}


FIRST = event("SuccessfulCreate", "create Pod a-broker-0 in StatefulSet a-broker successful", 1)
REFUSED = event("FailedCreate", f"create Pod a-broker-1 in StatefulSet a-broker failed error: {QUOTA}", 2)
AGAIN = event("SuccessfulCreate", "create Pod a-broker-1 in StatefulSet a-broker successful", 3)
OF_TEN = event("FailedCreate", "create Pod a-broker-10 in StatefulSet a-broker failed error: no", 4)
CLAIM = event(
    "FailedCreate",
    "create Claim volume-0-a-broker-2 for Pod a-broker-2 in StatefulSet a-broker failed error: no disks",
    5,
)


def test_the_last_failure_of_a_missing_pod_is_reported() -> None:
    assert why_not_made(["a-broker-0", "a-broker-1"], [FIRST, REFUSED]) == QUOTA
    assert why_not_made(["a-broker-2"], [CLAIM, FIRST]) == "no disks"


def test_failures_that_are_resolved_or_about_other_pods_are_not_reported() -> None:
    assert why_not_made(["a-broker-1"], [AGAIN, REFUSED]) == ""
    assert why_not_made(["a-broker-1"], [OF_TEN]) == ""
    assert why_not_made(["a-broker-0"], []) == ""


def test_the_last_warning_about_a_claim_of_the_cluster_is_reported() -> None:
    told = [
        event("ProvisioningFailed", 'storageclass.storage.k8s.io "fsat" not found', 3, "volume-0-a-broker-0"),
        event("ProvisioningFailed", "wait", 1, "volume-0-a-broker-0"),
        event("ProvisioningFailed", "no", 5, "volume-0-b-broker-0"),
    ]
    found = why_not_bound(["volume-0-a-broker-"], told)
    assert found == 'volume-0-a-broker-0: storageclass.storage.k8s.io "fsat" not found'
    assert why_not_bound(["volume-0-c-broker-"], told) == ""
