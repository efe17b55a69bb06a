"""Leader election with a Lease of `coordination.k8s.io`, by the rules of client-go.

The clocks of different machines are never compared. To an observer, a lease has expired if the lease has not changed
for `leaseDurationSeconds` by the observer's own monotonic clock.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Spec = Mapping[str, Any]

DURATION_S: Final = 14
"""The time without a renewal after which another operator may take a lease."""
RENEW_S: Final = 10.0
"""The time without a renewal after which the holder stops its work.

The time is shorter than `DURATION_S`, so that the holder stops before another operator can take the lease.
"""
RETRY_S: Final = 1.0
"""The time between two renewals by the holder, and between two reads by another operator.

With `DURATION_S` and this interval, another operator takes over within 15 s.
"""


class Sighting(NamedTuple):
    """The content of a lease, and the monotonic time at which this content was first seen."""

    spec: Spec
    seen_s: float


def sighting(spec: Spec, before: Sighting | None, now_s: float) -> Sighting:
    """Return the content of the lease and when it was first seen: now, or earlier if the content has not changed."""
    return before if before is not None and before.spec == spec else Sighting(spec, now_s)


def holder_of(spec: Spec) -> str:
    """Return the identity of the holder, or "" if nobody holds the lease."""
    return spec.get("holderIdentity") or ""


def free_in_s(seen: Sighting, now_s: float) -> float:
    """Return the seconds until the lease expires unless it is renewed, or 0 if it is released or expired."""
    if not holder_of(seen.spec):
        return 0.0
    return max(0.0, seen.seen_s + float(seen.spec.get("leaseDurationSeconds", DURATION_S)) - now_s)


def taken(spec: Spec, identity: str, time_of_day: str) -> dict[str, Any]:
    """Return the lease spec with which `identity` takes or renews the lease; `time_of_day` is shown, never compared."""
    renewed = {"holderIdentity": identity, "leaseDurationSeconds": DURATION_S, "renewTime": time_of_day}
    if holder_of(spec) == identity:
        return renewed
    transitions = spec.get("leaseTransitions", 0) + bool(spec)
    return {**renewed, "acquireTime": time_of_day, "leaseTransitions": transitions}


def released(time_of_day: str) -> dict[str, Any]:
    """Return the merge patch of the spec with which a holder releases the lease, so that it can be taken at once."""
    return {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": time_of_day}
