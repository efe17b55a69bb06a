"""The conditions of a Cluster for claims that are deleted while in use, resized, or larger than declared."""

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas_operator.planning.brokers.claims import larger_claims
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, FAILED, BrokerClaim, PodsState
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.planning.topics.lost_records import as_before
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import CLAIMS_DELETED, CLAIMS_LARGER, VOLUMES_RESIZING, Condition

IN_USE: Final = "InUse"
GROWN: Final = "GrownByAnother"


def claim_conditions(cluster: Cluster, now: str, pods: PodsState | None) -> Iterator[Condition]:
    """Yield the conditions about deleted, resizing and too large claims, if there are any; `now` is in RFC 3339.

    While the pods cannot be read (None), the earlier conditions are kept.
    """
    if pods is None:
        for kind in (CLAIMS_DELETED, VOLUMES_RESIZING, CLAIMS_LARGER):
            yield from as_before(cluster, kind)
        return
    deleted = [claim for claim in pods.claims if claim.is_ending and claim.broker_id in pods.pods]
    if deleted:
        yield condition(cluster, CLAIMS_DELETED, "True", IN_USE, _deleted(deleted), now)
    resizing = [claim for claim in pods.claims if claim.resize is not None]
    if resizing:
        reasons = sorted({claim.resize.reason for claim in resizing if claim.resize}, key=lambda each: each != FAILED)
        yield condition(cluster, VOLUMES_RESIZING, "True", reasons[0], _resizing(resizing), now)
    larger = larger_claims(cluster, pods.lasting_claims)
    if larger:
        yield condition(cluster, CLAIMS_LARGER, "True", GROWN, _larger(larger), now)


def _larger(claims: Sequence[BrokerClaim]) -> str:
    names = listed([f"{claim.name} ({claim.size})" for claim in claims])
    return (
        f"claims are larger than spec.storage.volumes declares: {names}. They keep their size, and new brokers get the "
        "declared one; declare the larger size to let all claims of the volume grow to it"
    )


def resize_failure(pods: PodsState) -> Refusal | None:
    """Return the Refusal to report if the resize of claims has failed, or None if no resize has failed."""
    failed = [claim for claim in pods.claims if claim.resize is not None and claim.resize.reason == FAILED]
    return Refusal(CANNOT_GROW, _resizing(failed)) if failed else None


def _resizing(claims: Sequence[BrokerClaim]) -> str:
    return listed([f"{claim.name}: {claim.resize.message}" for claim in claims if claim.resize is not None])


def _deleted(claims: Sequence[BrokerClaim]) -> str:
    names = listed([claim.name for claim in claims])
    return (
        f"claims were deleted while in use: {names}. Their records are lost when the broker's pod ends, "
        "so the operator restarts no broker now. When every partition on these claims has an in-sync replica on "
        "another broker, delete the broker's pod to get a new disk"
    )
