"""A lease follows the rules of client-go: when an operator may take it, and what it writes."""

from collections.abc import Mapping

import pytest

from barnabas_operator.leader_election import Sighting, Spec, free_in_s, holder_of, released, sighting, taken

HELD = {
    "holderIdentity": "a",
    "leaseDurationSeconds": 15,
    "renewTime": "T1",
    "acquireTime": "T0",
    "leaseTransitions": 2,
}
FREE: Mapping[str, tuple[Sighting, float, float]] = {
    "one that nobody has made yet": (Sighting({}, 0.0), 0.0, 0.0),
    "one that was renewed just now": (Sighting(HELD, 100.0), 100.0, 15.0),
    "one that has not changed for nearly its duration": (Sighting(HELD, 100.0), 114.5, 0.5),
    "one that has not changed for its duration": (Sighting(HELD, 100.0), 115.5, 0.0),
    "one that its holder holds for longer": (Sighting({**HELD, "leaseDurationSeconds": 60}, 100.0), 115.0, 45.0),
    "one that was released": (Sighting({**HELD, "holderIdentity": None}, 100.0), 100.0, 0.0),
}


@pytest.mark.parametrize(("seen", "now_s", "left_s"), FREE.values(), ids=FREE.keys())
def test_a_lease_is_free_if_it_has_no_holder_or_was_not_renewed_in_time(
    seen: Sighting, now_s: float, left_s: float
) -> None:
    assert free_in_s(seen, now_s) == left_s


def test_the_duration_of_a_lease_restarts_only_if_the_lease_changes() -> None:
    first = sighting(HELD, None, 100.0)
    assert sighting(dict(HELD), first, 105.0) == first
    assert sighting({**HELD, "renewTime": "long ago"}, first, 105.0).seen_s == 105.0


def test_a_renewal_keeps_the_acquire_time_and_a_new_holder_counts_a_transition() -> None:
    assert taken(HELD, "a", "T2") == {"holderIdentity": "a", "leaseDurationSeconds": 14, "renewTime": "T2"}
    assert taken(HELD, "b", "T2") == {
        "holderIdentity": "b",
        "leaseDurationSeconds": 14,
        "renewTime": "T2",
        "acquireTime": "T2",
        "leaseTransitions": 3,
    }
    assert taken({}, "a", "T2")["leaseTransitions"] == 0


def test_an_operator_that_shuts_down_releases_its_lease() -> None:
    left: Spec = {**HELD, **released("T3")}
    assert holder_of(left) == ""
    assert free_in_s(Sighting(left, 100.0), 100.0) == 0.0
