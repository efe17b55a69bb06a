"""A Lease of `coordination.k8s.io`: its holder, its end, and its content when taken or released, as in client-go.

Nobody compares clocks: a lease is over when it has not changed for its duration, by the observer's own clock.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Spec = Mapping[str, Any]

DURATION_S: Final = 14
"""The time without a renewal after which others take a lease."""
RENEW_S: Final = 10.0
"""The time without a renewal after which the holder stops acting: its work has ended before others begin."""
RETRY_S: Final = 1.0
"""The time between two renewals, or two looks: with the duration, another operator acts within 15 s."""


class Sighting(NamedTuple):
    """The content of a lease, and when it was first seen, by a monotonic clock."""

    spec: Spec
    seen_s: float


def sighting(spec: Spec, before: Sighting | None, now_s: float) -> Sighting:
    """Return the sighting; an unchanged content keeps the time at which it was first seen."""
    return before if before is not None and before.spec == spec else Sighting(spec, now_s)


def holder_of(spec: Spec) -> str:
    """Return the holder; "" if there is none."""
    return spec.get("holderIdentity") or ""


def free_in_s(seen: Sighting, now_s: float) -> float:
    """Return the seconds until anybody may take it, unless renewed; 0 if it was released or not renewed in time."""
    if not holder_of(seen.spec):
        return 0.0
    return max(0.0, seen.seen_s + float(seen.spec.get("leaseDurationSeconds", DURATION_S)) - now_s)


def taken(spec: Spec, identity: str, time_of_day: str) -> dict[str, Any]:
    """Return the lease as `identity` takes or renews it; `time_of_day` is for people."""
    renewed = {"holderIdentity": identity, "leaseDurationSeconds": DURATION_S, "renewTime": time_of_day}
    if holder_of(spec) == identity:
        return renewed
    transitions = spec.get("leaseTransitions", 0) + bool(spec)
    return {**renewed, "acquireTime": time_of_day, "leaseTransitions": transitions}


def released(time_of_day: str) -> dict[str, Any]:
    """Return the lease as its holder releases it: the next one takes it at once. A null removes a field."""
    return {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": time_of_day}
