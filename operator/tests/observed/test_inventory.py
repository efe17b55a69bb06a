"""Which Topic is about the same topic of the same Cluster as another, whatever the watch tells and in which order."""

from collections.abc import Mapping
from typing import Any

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.object_key import Key


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


def test_a_namesake_is_found_by_the_topic_and_not_by_the_name() -> None:
    inventory = inventory_of(CLUSTER, FLIGHTS)
    assert inventory.namesake_of(PLANES) == "flights"
    assert inventory.namesake_of(FLIGHTS) is None
    assert inventory.namesake_of(resource("Topic", "flights", topicName="others")) is None


def test_topics_of_other_clusters_and_namespaces_are_no_namesakes() -> None:
    inventory = inventory_of(CLUSTER, resource("Cluster", "two"), resource("Topic", "flights", cluster="one"))
    assert inventory.namesake_of(resource("Topic", "f", cluster="two", topicName="flights")) is None
    assert inventory.namesake_of(resource("Topic", "f", cluster="one", topicName="flights")) == "flights"
    assert inventory.namesake_of(resource("Topic", "f", "there", cluster="one", topicName="flights")) is None


def test_a_topic_that_is_gone_or_about_another_now_is_a_namesake_no_more() -> None:
    inventory = inventory_of(CLUSTER, PLANES)
    inventory.keep(resource("Topic", "planes", topicName="planes"), is_gone=False)
    assert inventory.namesake_of(FLIGHTS) is None
    inventory.keep(PLANES, is_gone=False)
    assert inventory.namesake_of(FLIGHTS) == "planes"
    inventory.keep(PLANES, is_gone=True)
    assert inventory.namesake_of(FLIGHTS) is None


def test_a_second_cluster_takes_no_topic_away_from_the_one_that_has_it() -> None:
    inventory = inventory_of(CLUSTER, FLIGHTS)
    had = {**FLIGHTS, "status": {"cluster": "one"}}
    assert inventory.cluster_of(FLIGHTS) == ("here", "one")
    inventory.keep(had, is_gone=False)
    inventory.keep(resource("Cluster", "two"), is_gone=False)
    assert list(inventory.resources_of("Topic", Key("here", "one"))) == [had]
    assert not list(inventory.strays())
    inventory.keep(CLUSTER, is_gone=True)
    assert inventory.cluster_of(had) == ("here", "one"), "nor where the first is not there (yet)"
    assert inventory.cluster_of(FLIGHTS) == ("here", "two")


def test_a_topic_that_differs_in_dots_and_underscores_only_collides_and_is_no_namesake() -> None:
    inventory = inventory_of(CLUSTER, resource("Topic", "a.b"), resource("Topic", "alike", topicName="a_c"))
    assert inventory.colliding_with(resource("Topic", "a-b", topicName="a_b")) == "a.b"
    assert inventory.namesake_of(resource("Topic", "a-b", topicName="a_b")) is None
    assert inventory.namesake_of(resource("Topic", "mine", topicName="a_c")) == "alike"
    assert inventory.colliding_with(resource("Topic", "mine", topicName="a_c")) is None
    assert inventory.colliding_with(resource("Topic", "mine", "there", topicName="a_b")) is None


def made(uid: str, at: str, version: int = 1) -> Mapping[str, Any]:
    meta = {**CLUSTER["metadata"], "uid": uid, "creationTimestamp": at, "resourceVersion": str(version)}
    return {**CLUSTER, "metadata": meta}


def test_late_news_of_one_that_went_are_not_of_the_one_that_has_its_name_since() -> None:
    before, again = made("a", "2026-01-01T00:00:00Z", 7), made("b", "2026-01-01T00:00:01Z", 9)
    inventory = inventory_of(before, again)
    inventory.keep(before, is_gone=False)
    inventory.keep(before, is_gone=True)
    assert inventory.clusters[Key("here", "one")]["metadata"]["uid"] == "b"
    inventory.keep(again, is_gone=True)
    assert not inventory.clusters
