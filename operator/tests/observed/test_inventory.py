"""The inventory finds Topics that are about the same topic of the same Cluster."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_operator.observed.inventory import LAST_APPLIED, Inventory
from barnabas_operator.resources.kind import Key


def resource(kind: str, name: str, namespace: str = "here", **spec: object) -> Mapping[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def inventory_of(*bodies: Mapping[str, Any]) -> Inventory:
    inventory = Inventory()
    for body in bodies:
        inventory.keep(body, is_gone=False)
    return inventory


CLUSTER = resource("Cluster", "one")
FLIGHTS = resource("Topic", "flights")
PLANES = resource("Topic", "planes", topicName="flights")


def test_a_namesake_is_found_by_its_topic_and_not_by_its_resource_name() -> None:
    inventory = inventory_of(CLUSTER, FLIGHTS)
    assert inventory.namesake_of(PLANES) == "flights"
    assert inventory.namesake_of(FLIGHTS) is None
    assert inventory.namesake_of(resource("Topic", "flights", topicName="others")) is None


def test_topics_of_other_clusters_and_namespaces_are_no_namesakes() -> None:
    inventory = inventory_of(CLUSTER, resource("Cluster", "two"), resource("Topic", "flights", cluster="one"))
    assert inventory.namesake_of(resource("Topic", "f", cluster="two", topicName="flights")) is None
    assert inventory.namesake_of(resource("Topic", "f", cluster="one", topicName="flights")) == "flights"
    assert inventory.namesake_of(resource("Topic", "f", "there", cluster="one", topicName="flights")) is None


def test_a_deleted_topic_or_one_with_another_topic_name_is_no_namesake() -> None:
    inventory = inventory_of(CLUSTER, PLANES)
    inventory.keep(resource("Topic", "planes", topicName="planes"), is_gone=False)
    assert inventory.namesake_of(FLIGHTS) is None
    inventory.keep(PLANES, is_gone=False)
    assert inventory.namesake_of(FLIGHTS) == "planes"
    inventory.keep(PLANES, is_gone=True)
    assert inventory.namesake_of(FLIGHTS) is None


def test_a_second_cluster_does_not_take_over_a_topic_of_the_first() -> None:
    inventory = inventory_of(CLUSTER, FLIGHTS)
    had = {**FLIGHTS, "status": {"cluster": "one"}}
    assert inventory.cluster_of(FLIGHTS) == ("here", "one")
    inventory.keep(had, is_gone=False)
    inventory.keep(resource("Cluster", "two"), is_gone=False)
    assert list(inventory.resources_of("Topic", Key("here", "one"))) == [had]
    assert not list(inventory.strays())
    inventory.keep(CLUSTER, is_gone=True)
    assert inventory.cluster_of(had) == ("here", "one"), "it stays with the first, even if that does not exist (yet)"
    assert inventory.cluster_of(FLIGHTS) == ("here", "two")


def test_a_topic_that_differs_only_in_dots_and_underscores_collides_and_is_no_namesake() -> None:
    inventory = inventory_of(CLUSTER, resource("Topic", "a.b"), resource("Topic", "alike", topicName="a_c"))
    assert inventory.colliding_with(resource("Topic", "a-b", topicName="a_b")) == "a.b"
    assert inventory.namesake_of(resource("Topic", "a-b", topicName="a_b")) is None
    assert inventory.namesake_of(resource("Topic", "mine", topicName="a_c")) == "alike"
    assert inventory.colliding_with(resource("Topic", "mine", topicName="a_c")) is None
    assert inventory.colliding_with(resource("Topic", "mine", "there", topicName="a_b")) is None


def test_the_inventory_drops_managed_fields_and_the_last_applied_annotation() -> None:
    """These are more than half of a body, and nothing reads them."""
    for body, key in ((CLUSTER, Key("here", "one")), (FLIGHTS, Key("here", "flights"))):
        notes = {LAST_APPLIED: "{}", "barnabas.dev/mine": "yes"}
        meta = {**body["metadata"], "annotations": notes, "managedFields": [{"manager": "kubectl"}]}
        kept = inventory_of({**body, "metadata": meta}).of_kind(body["kind"])[key]
        assert kept == {**body, "metadata": {**body["metadata"], "annotations": {"barnabas.dev/mine": "yes"}}}


class CountedSpec(dict[str, Any]):
    """A spec that counts how often its fields are read."""

    looks = 0

    def get(self, name: str, default: object = None) -> Any:
        CountedSpec.looks += 1
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        CountedSpec.looks += 1
        return super().__getitem__(name)


def counted(name: str, **spec: object) -> Mapping[str, Any]:
    return {**resource("Topic", name), "spec": CountedSpec(spec)}


def looks_beside(others: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the reads for a Cluster's own Topics, all and one by one, beside `others` of another Cluster."""
    own = [counted(f"own{number}", cluster="one") for number in range(3)]
    there = [counted(f"other{number}", cluster="two") for number in range(others)]
    inventory = inventory_of(CLUSTER, resource("Cluster", "two"), *own, *there)
    monkeypatch.setattr(CountedSpec, "looks", 0)
    found = list(inventory.resources_of("Topic", Key("here", "one")))
    assert [each["metadata"]["name"] for each in found] == ["own0", "own1", "own2"]
    for each in found:
        assert (inventory.namesake_of(each), inventory.colliding_with(each)) == (None, None)
    inventory.keep(counted("own0", cluster="one"), is_gone=False)
    return CountedSpec.looks


def test_the_cost_of_a_clusters_topics_does_not_depend_on_those_of_other_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a round of each Cluster would read the Topics of all, which is quadratic."""
    few = looks_beside(2, monkeypatch)
    assert looks_beside(200, monkeypatch) == few > 0


def test_the_cost_of_a_topic_does_not_depend_on_the_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks_of_one(topics: int) -> int:
        inventory = inventory_of(CLUSTER, *(counted(f"t{number}") for number in range(topics)))
        monkeypatch.setattr(CountedSpec, "looks", 0)
        assert inventory.namesake_of(counted("new", topicName="t1")) == "t1"
        assert inventory.colliding_with(counted("new", topicName="t1")) is None
        return CountedSpec.looks

    few = looks_of_one(2)
    assert looks_of_one(200) == few > 0
