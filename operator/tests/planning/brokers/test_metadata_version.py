"""The next metadata level to finalize, after a roll: the highest that all brokers support, or the pinned one."""

from collections.abc import Mapping, Sequence

import pytest

from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.cluster_checks import (
    RaiseMetadataVersion,
    Supported,
    may_raise,
    next_version,
    refuse_lower,
)
from barnabas_operator.planning.cluster_state import ClusterState, MetadataVersions, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta

GOOD = BrokerView(0, is_running=True, is_ready=True, is_changed=False)
OTHER = GOOD._replace(broker_id=1)
BEHIND = Trouble("flights", 0, (1,), (0,), offline=False)
LOST = Trouble("flights", 0, (0, 1), (), offline=True)


def cluster(pinned: int | None = None, *, pause: bool = False) -> Cluster:
    return Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec(metadata_version=pinned, pause=pause))


def state(*troubles: Trouble, finalized: int = 1, offered: int = 3, alive: int = 2) -> ClusterState:
    versions = MetadataVersions(finalized, offered)
    return ClusterState(dict.fromkeys(range(alive)), {}, troubles=troubles, metadata_versions=versions)


MOMENTS: Mapping[str, tuple[Cluster, Sequence[BrokerView], ClusterState, bool]] = {
    "all is as wanted, and a broker has a higher one": (cluster(), [GOOD, OTHER], state(), True),
    "none has a higher one": (cluster(), [GOOD, OTHER], state(finalized=3), False),
    "a pin holds it back": (cluster(1), [GOOD, OTHER], state(), False),
    "a pin asks for a higher one than the broker has that was asked": (
        cluster(2),
        [GOOD, OTHER],
        state(offered=1),
        True,
    ),
    "the Cluster is paused": (cluster(pause=True), [GOOD, OTHER], state(), False),
    "brokers know of no level": (cluster(), [GOOD, OTHER], ClusterState({0: None, 1: None}, {}), False),
    "one is to restart": (cluster(), [GOOD, OTHER._replace(is_changed=True)], state(), False),
    "one lacks a volume": (cluster(), [GOOD, OTHER._replace(lacks_volume=True)], state(), False),
    "one is not there": (cluster(), [GOOD, OTHER._replace(is_running=False)], state(), False),
    "one is not ready": (cluster(), [GOOD, OTHER._replace(is_ready=False)], state(), False),
    "one ends": (cluster(), [GOOD, OTHER._replace(ending="pod flights-broker-1")], state(), False),
    "one is not alive for the others": (cluster(), [GOOD, OTHER], state(alive=1), False),
    "a replica is out of sync": (cluster(), [GOOD, OTHER], state(BEHIND), False),
    "records are lost, so somebody may want to go back": (cluster(), [GOOD, OTHER], state(LOST), False),
    "there are no brokers": (cluster(), [], state(alive=0), False),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_brokers_are_asked_for_their_levels_after_a_roll_if_a_higher_level_is_wanted(name: str) -> None:
    declared, brokers, found, may = MOMENTS[name]
    assert may_raise(declared, brokers, found) is may


def raised(before: int, after: int) -> RaiseMetadataVersion:
    return RaiseMetadataVersion(before, after)


def unsupported(pinned: int, highest: int, broker: int) -> Refusal:
    what = f"spec.metadataVersion is {pinned}; allowed: 1 to {highest}"
    why = f"broker {broker} supports no higher version; change spec.brokers.image, or remove spec.metadataVersion"
    return Refusal("NotSupported", f"{what}; {why}")


STEPS: Mapping[str, tuple[int | None, ClusterState, Sequence[int], RaiseMetadataVersion | Refusal | None]] = {
    "to the highest": (None, state(), (3, 3), raised(1, 3)),
    "to the highest that all support": (None, state(), (3, 2), raised(1, 2)),
    "not while one broker is old": (None, state(), (3, 1), None),
    "not while one broker does not tell": (None, state(), (3,), None),
    "not above the pin": (2, state(), (3, 3), raised(1, 2)),
    "not where the pin is": (2, state(finalized=2), (3, 3), None),
    "a pin that one does not support": (3, state(), (3, 2), unsupported(3, 2, 1)),
    "a pin that none supports": (7, state(), (3, 3), unsupported(7, 3, 0)),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_level_is_raised_to_the_highest_that_all_brokers_support(name: str) -> None:
    pinned, found, highest, step = STEPS[name]
    supported = {broker: Supported(1, each) for broker, each in enumerate(highest)}
    assert next_version(cluster(pinned), found, supported) == step


@pytest.mark.parametrize(("pinned", "finalized"), [(None, 2), (2, 2), (3, 2), (1, None)])
def test_a_pinned_level_that_is_not_lower_is_allowed(pinned: int | None, finalized: int | None) -> None:
    assert refuse_lower(cluster(pinned), finalized) is None


def test_a_lower_pinned_level_is_refused_with_how_to_downgrade() -> None:
    refusal = refuse_lower(cluster(1), 2)
    assert refusal is not None
    assert refusal.reason == "NotSupported"
    assert refusal.message.startswith("spec.metadataVersion is 1; allowed: 2 or more, or no value")
    assert "downgrade --feature barnabas.metadata.version=1" in refusal.message
