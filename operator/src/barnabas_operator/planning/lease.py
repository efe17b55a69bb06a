"""A Lease of `coordination.k8s.io`: who holds it, when it is free, and what who takes it writes. As client-go does it.

Nobody compares clocks: a lease is over when it has not changed for its duration, by the clock of who looks.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Spec = Mapping[str, Any]

DURATION_S: Final = 14
"""Others take a lease that was not renewed for so long."""
RENEW_S: Final = 10.0
"""Who could not renew it for so long stops acting: what is under way then has ended before others begin."""
RETRY_S: Final = 1.0
"""Between two renewals, or two looks: with the duration, another operator acts within 15 s."""


class Sighting(NamedTuple):
    """What a lease said, and when that was seen first, by a monotonic clock."""

    spec: Spec
    seen_s: float


def sighting(spec: Spec, before: Sighting | None, now_s: float) -> Sighting:
    """One that says the same as `before` has been so since then."""
    return before if before is not None and before.spec == spec else Sighting(spec, now_s)


def holder_of(spec: Spec) -> str:
    """Who has it; empty where nobody does."""
    return spec.get("holderIdentity") or ""


def free_in_s(seen: Sighting, now_s: float) -> float:
    """When anybody may take it if its holder does not renew it; 0 where it was released, or not renewed in time."""
    if not holder_of(seen.spec):
        return 0.0
    return max(0.0, seen.seen_s + float(seen.spec.get("leaseDurationSeconds", DURATION_S)) - now_s)


def taken(spec: Spec, identity: str, time_of_day: str) -> dict[str, Any]:
    """The lease as `identity` takes or renews it; `time_of_day` is for people."""
    renewed = {"holderIdentity": identity, "leaseDurationSeconds": DURATION_S, "renewTime": time_of_day}
    if holder_of(spec) == identity:
        return renewed
    transitions = spec.get("leaseTransitions", 0) + bool(spec)
    return {**renewed, "acquireTime": time_of_day, "leaseTransitions": transitions}


def released(time_of_day: str) -> dict[str, Any]:
    """The lease as its holder leaves it: the next one takes it at once. A null takes a field away."""
    return {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": time_of_day}
