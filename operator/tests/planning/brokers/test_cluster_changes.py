"""The changes of a Cluster's disks that are refused if the disks are claims of pods."""

from collections.abc import Mapping

import pytest

from barnabas_operator.planning.brokers.cluster_checks import (
    larger_claims,
    refuse_change,
    refuse_disks,
    refuse_growth,
    refuse_smaller,
)
from barnabas_operator.planning.brokers.pods import BrokerClaim
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.kind import ObjectMeta, quantity_value


def cluster(*volumes: Volume) -> Cluster:
    return Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec(storage=Storage(volumes=volumes)))


DISKS: Mapping[str, tuple[Volume, Volume, str | None]] = {
    "the same in other words": (Volume(id=0, size="1Gi"), Volume(id=0, size="1024Mi"), None),
    "more": (Volume(id=0, size="1Gi"), Volume(id=0, size="1.5Gi"), None),
    "another class": (
        Volume(id=0, storage_class="fast"),
        Volume(id=0, storage_class="slow"),
        (
            "spec.storage.volumes[0].storageClass is slow; allowed: fast, "
            "because existing claims cannot change their storage class"
        ),
    ),
    "whether the claim goes, too": (Volume(id=0), Volume(id=0, delete_claim=True), None),
}


@pytest.mark.parametrize("name", DISKS)
def test_a_claim_may_grow_but_not_change_its_storage_class(name: str) -> None:
    before, after, message = DISKS[name]
    refusal = refuse_disks(cluster(after), [before], [claim("1Gi", "fast")])
    assert (refusal.message if refusal else None) == message


def claim(size: str, storage_class: str = "slow", *, number: int = 0, emptied: bool = False) -> BrokerClaim:
    return BrokerClaim(f"volume-0-flights-broker-{number}", "u", 0, number, size, storage_class, emptied)


SIZES: Mapping[str, tuple[str, list[BrokerClaim], str | None]] = {
    "as its claims have": ("1Gi", [claim("1024Mi")], None),
    "less in another unit": (
        "1000M",
        [claim("1Gi")],
        "is 1000M; allowed: 1Gi or more, because existing claims cannot shrink",
    ),
    "back to what those have that could not grow": ("1Gi", [claim("2Gi"), claim("1Gi", number=1)], None),
    "no claims yet": ("1Gi", [], None),
    "less than what a removed broker had": ("1Gi", [claim("1Gi"), claim("2Gi", number=1, emptied=True)], None),
    "more, where the class can": ("2Gi", [claim("1Gi")], None),
    "more, where the class cannot": (
        "2Gi",
        [claim("1Gi", "rigid")],
        (
            "is 2Gi; allowed: 1Gi, because the storage class rigid of the claims "
            "does not set allowVolumeExpansion to true"
        ),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_allowed_if_the_claims_have_it_or_can_grow_to_it(name: str) -> None:
    size, claims, why = SIZES[name]
    wanted = cluster(Volume(id=0, size=size))
    refusal = refuse_smaller(wanted, [Volume(id=0, size="4Gi")], claims) or refuse_growth(wanted, claims, {"rigid"})
    assert (refusal.message if refusal else None) == (why and f"spec.storage.volumes[0].size {why}")


def test_a_claim_that_another_program_has_grown_is_named_and_refuses_nothing() -> None:
    declared, grown = Volume(id=0, size="1Gi"), claim("2Gi")
    assert refuse_disks(cluster(declared), [declared], [grown]) is None
    assert larger_claims(cluster(declared), [grown, claim("1Gi", number=1)]) == [grown]


def test_a_disk_of_a_local_process_may_shrink() -> None:
    assert refuse_change(cluster(Volume(id=0, size="2Gi")), cluster(Volume(id=0, size="1Gi"))) is None


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2", 2), ("1k", 1000), ("1.5Ki", 1536), ("1Pi", 2**50)])
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: str, value: float) -> None:
    assert quantity_value(text) == value
