"""What is told to whoever applies a resource, before it is stored."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from barnabas_operator.planning.admission.review import review
from barnabas_operator.planning.admission.verdict import Around, Verdict
from barnabas_operator.planning.cluster_state import ClusterState, TopicState

Json = dict[str, Any]
LIVE = ClusterState(
    racks={0: None, 1: None, 2: None},
    topics={"flights": TopicState("id", ((0, 1, 2),) * 6, {}), "a.b": TopicState("i", ((0,),), {})},
)


def topic(name: str = "flights", **spec: object) -> Json:
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


def noted(applied: str) -> Json:
    declared = topic("new", config={"segment.ms": 5})
    declared["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    return declared


def cluster(**spec: object) -> Json:
    meta = {"name": "quickstart", "namespace": "default"}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}


def at_level(level: int, **spec: object) -> Json:
    """A Cluster whose brokers go by that level of the metadata."""
    return {**cluster(**spec), "status": {"metadataVersion": level}}


NEVER_LOWERED = (
    "the brokers have finalized it, and the operator never lowers it; to go back set spec.pause: true, run "
    "kafka-features.sh downgrade --feature barnabas.metadata.version=1, then set spec.metadataVersion and "
    "spec.pause: false at once"
)
ALLOWED = Verdict()
HELD = {**topic(), "status": {"cluster": "one"}}
A_QUANTITY = "a quantity such as 500m, 2, 512Mi or 10Gi"
NEVER_FEWER = "Decreasing partitions not supported: spec.partitions is"

TOPICS: Mapping[str, tuple[Json | None, Json | None, Around, str | None]] = {
    "a good one": (None, topic(partitions=6, replicas=3), Around(), None),
    "a status only": (topic(partitions=6), {**topic(partitions=6), "status": {"partitions": 9}}, Around(), None),
    "fewer partitions": (topic(partitions=6), topic(partitions=3), Around(), f"{NEVER_FEWER} 3; allowed: 6 or more"),
    "no partitions any more": (topic(partitions=6), topic(), Around(), f"{NEVER_FEWER} missing; allowed: 6 or more"),
    "fewer than the topic has": (
        None,
        topic(partitions=3),
        Around(state=LIVE),
        f"{NEVER_FEWER} 3, the topic has 6; allowed: 6 or more",
    ),
    "a topic that another has": (
        None,
        topic("mine", topicName="flights"),
        Around(taken_by="flights"),
        "topic flights is managed by the Topic flights already; allowed: one Topic each",
    ),
    "a pause of one whose partitions others have raised": (
        topic(partitions=3),
        topic(partitions=3, pause=True),
        Around(state=LIVE),
        None,
    ),
    "a pause of one that another has": (topic(), topic(pause=True), Around(taken_by="mine", state=LIVE), None),
    "the end of such a pause": (
        topic(partitions=3, pause=True),
        topic(partitions=3),
        Around(state=LIVE),
        f"{NEVER_FEWER} 3, the topic has 6; allowed: 6 or more",
    ),
    "a config that is none in a pause": (
        topic(),
        topic(pause=True, config={"retention.ms": "soon"}),
        Around(state=LIVE),
        "spec.config retention.ms=soon: must be an integer, at least -1",
    ),
    "a topic that collides with another Topic's": (
        None,
        topic("a-b", topicName="c_d"),
        Around(state=LIVE, collides_with="c.d"),
        (
            "topic c_d and that of the Topic c.d differ in '.' and '_' only, which metrics cannot tell apart; "
            "allowed: another name"
        ),
    ),
    "a topic that is there beside one that it collides with": (
        None,
        topic("a.b", partitions=2, replicas=1),
        Around(state=LIVE, collides_with="a-b"),
        None,
    ),
    "a change of one that was stored though it collides": (
        topic("c.d"),
        topic("c.d", partitions=2),
        Around(state=LIVE, collides_with="c-d"),
        None,
    ),
    "more replicas than brokers": (
        None,
        topic("new", partitions=1, replicas=4),
        Around(state=LIVE),
        "spec.replicas is 4; allowed: 1 to 3, the number of brokers",
    ),
    "as many replicas as brokers that are declared and have not joined yet": (
        None,
        topic("new", partitions=1, replicas=3),
        Around(state=replace(LIVE, racks={0: None}, registered=frozenset({0})).with_brokers(3)),
        None,
    ),
    "as many replicas as brokers, of which one restarts": (
        None,
        topic("new", partitions=1, replicas=3),
        Around(state=replace(LIVE, racks={0: None, 2: None}, registered=frozenset(range(3)))),
        None,
    ),
    "as many replicas as brokers, of which some have not joined yet": (
        None,
        topic("new", partitions=1, replicas=3),
        Around(state=ClusterState(racks={0: None}, topics={}).awaiting(3, {0: None})),
        None,
    ),
    "more replicas than brokers that stay": (
        None,
        topic("new", partitions=1, replicas=3),
        Around(state=replace(LIVE, registered=frozenset(range(3))).with_brokers(2)),
        "spec.replicas is 3; allowed: 1 to 2, the number of brokers",
    ),
    "a name that collides": (
        None,
        topic("x", topicName="a_b"),
        Around(state=LIVE),
        "Topic a_b collides with the existing a.b",
    ),
    "an internal topic": (
        None,
        topic("x", topicName="__consumer_offsets"),
        Around(),
        "spec.topicName is __consumer_offsets, a topic of the brokers; allowed: another name",
    ),
    "a config that is none": (
        None,
        topic(config={"retention.mss": "1"}),
        Around(),
        "spec.config retention.mss: is no setting of a topic; did you mean retention.ms?",
    ),
    "a config out of range": (
        None,
        topic(config={"segment.bytes": 1}),
        Around(),
        "spec.config segment.bytes=1: must be an integer, at least 1048576",
    ),
    "the cluster that has it, said later": (HELD, topic(cluster="one"), Around(), None),
    "another cluster, said later": (
        HELD,
        topic(cluster="two"),
        Around(),
        "spec.cluster is two; allowed: one, which has the topic, or leave it out",
    ),
    "a cluster where none has it yet": (topic(), topic(cluster="two"), Around(), None),
    "another cluster, where none has it yet": (topic(cluster="tow"), topic(cluster="two"), Around(), None),
    "another cluster than the one that has it": (
        {**topic(cluster="one"), "status": {"cluster": "one"}},
        topic(cluster="two"),
        Around(),
        "spec.cluster is two; allowed: one, which has the topic",
    ),
    "a cluster that goes": (
        {**topic(cluster="one"), "status": {"cluster": "one"}},
        topic(),
        Around(),
        "spec.cluster is missing; allowed: one, which has the topic",
    ),
    "a field that is none": (
        None,
        topic(partition=3),
        Around(),
        (
            "spec.partition is no field (did you mean partitions?); allowed: cluster, topicName, partitions, replicas, "
            "config, deletionPolicy, adopt, driftPolicy, pause"
        ),
    ),
    "a value of another type": (
        None,
        topic(partitions="six"),
        Around(),
        "spec.partitions is 'six' (string); allowed: an integer from 1 to 10000",
    ),
    "the end of a protected one": (
        topic(deletionPolicy="Protect"),
        None,
        Around(),
        "Topic flights stays: spec.deletionPolicy is Protect; allowed: set Delete or Retain first",
    ),
    "the end of another": (topic(deletionPolicy="Delete"), None, Around(), None),
}


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_refused_for_what_the_api_server_cannot_know(name: str) -> None:
    old, new, around, refusal = TOPICS[name]
    assert review(old, new, around).refusal == refusal


WARNINGS: Mapping[str, tuple[Json | None, Json, Around, tuple[str, ...]]] = {
    "more partitions than declared": (
        topic(partitions=6),
        topic(partitions=12),
        Around(),
        ("6 to 12 partitions: keys map to other partitions",),
    ),
    "more partitions than the topic has": (
        None,
        topic(partitions=7, replicas=3),
        Around(state=LIVE),
        ("6 to 7 partitions: keys map to other partitions",),
    ),
    "one replica": (
        None,
        topic("new", replicas=1),
        Around(),
        ("spec.replicas is 1: the topic is away whenever its broker is; 3 is usual",),
    ),
    "no spare replica": (
        None,
        topic("new", replicas=2, config={"min.insync.replicas": 2}),
        Around(),
        ("min.insync.replicas=2 of 2 replicas: no broker can be away without refusing acks=all",),
    ),
    "nothing": (None, topic("new", partitions=3, replicas=3), Around(state=LIVE), ()),
    "a null that kubectl dropped": (
        None,
        noted('{"spec":{"config":{"retention.ms":null,"segment.ms":5}}}'),
        Around(),
        ("spec.config retention.ms: kubectl apply drops a null, which means the default; --server-side keeps it",),
    ),
    "a note that is none": (None, noted("no JSON"), Around(), ()),
    "a note of something else": (None, noted('{"spec":{"config":[1]}}'), Around(), ()),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_may_surprise_is_told_and_allowed(name: str) -> None:
    old, new, around, warnings = WARNINGS[name]
    assert review(old, new, around) == Verdict(None, warnings)


BALANCED = {"name": "outside", "port": 9094, "type": "loadbalancer"}
CLUSTERS: Mapping[str, tuple[Json | None, Json | None, str | None]] = {
    "a good one": (None, cluster(brokers={"replicas": 3}), None),
    "amounts as people write them": (
        None,
        cluster(
            brokers={"resources": {"requests": {"cpu": 1, "memory": "1e9"}, "limits": {"cpu": 2, "memory": ".5Ei"}}},
            storage={"volumes": [{"id": 0, "size": 10_000_000_000}]},
        ),
        None,
    ),
    "a disk that grows in other words": (
        cluster(storage={"volumes": [{"id": 0, "size": 2_000_000_000}]}),
        cluster(storage={"volumes": [{"id": 0, "size": "2e9"}]}),
        None,
    ),
    "half a processor as a number": (
        None,
        cluster(brokers={"resources": {"limits": {"cpu": 0.5}}}),
        f"spec.brokers.resources.limits.cpu is 0.5 (number); allowed: {A_QUANTITY}",
    ),
    "a setting that is none": (
        None,
        cluster(config={"num.partition": 1}),
        "spec.config num.partition=1: is no setting of a broker; did you mean num.partitions?",
    ),
    "balancers of several brokers by one name": (
        None,
        cluster(brokers={"replicas": 3}, listeners=[{**BALANCED, "advertisedHost": "kafka.example"}]),
        (
            "spec.listeners[0].advertisedHost is kafka.example, one address for 3 brokers, as each balancer has the "
            "port 9094; allowed: leave it out, or the type nodeport"
        ),
    ),
    "a host with its port": (
        None,
        cluster(listeners=[{**BALANCED, "advertisedHost": "kafka.example:9094"}]),
        (
            "spec.listeners[0].advertisedHost is kafka.example:9094; allowed: a name or an address without a port, "
            "an IPv6 address in [ ]"
        ),
    ),
    "a listener by the name of the port of probes": (
        None,
        cluster(listeners=[{**BALANCED, "name": "http"}]),
        "spec.listeners[0].name is 'http'; allowed: each name once, and not http or replication",
    ),
    "a balancer of one broker by a name": (
        None,
        cluster(listeners=[{**BALANCED, "advertisedHost": "kafka.example"}]),
        None,
    ),
    "a disk less": (
        cluster(storage={"volumes": [{"id": 0}, {"id": 1}]}),
        cluster(storage={"volumes": [{"id": 1}]}),
        "Removing volumes is not supported: spec.storage.volumes lacks the id 0; allowed: all ids there were",
    ),
    "a lower level of the metadata than there is": (
        at_level(2),
        cluster(metadataVersion=1),
        f"spec.metadataVersion is 1; allowed: 2 or more, or leave it out: {NEVER_LOWERED}",
    ),
    "the level that there is": (at_level(2), cluster(metadataVersion=2), None),
    "a lower level, where the brokers may have been brought back to it": (
        at_level(2, pause=True),
        cluster(metadataVersion=1),
        None,
    ),
    "something else, where the level is too low already": (
        at_level(2, metadataVersion=1),
        cluster(metadataVersion=1, brokers={"replicas": 3}),
        None,
    ),
    "a level that is none": (
        None,
        cluster(metadataVersion=0),
        "spec.metadataVersion is 0 (integer); allowed: an integer from 1 to 32767",
    ),
    "more copies than brokers": (
        None,
        cluster(config={"default.replication.factor": 2}),
        "spec.config default.replication.factor=2: allowed: 1 to 1, the number of brokers",
    ),
    "the end of a protected one": (
        cluster(deletionPolicy="Protect"),
        None,
        "Cluster quickstart stays: spec.deletionPolicy is Protect; allowed: set Delete or Retain first",
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_refused_for_what_brokers_would_not_start_with(name: str) -> None:
    old, new, refusal = CLUSTERS[name]
    assert review(old, new, Around()).refusal == refusal


def test_a_setting_without_effect_is_told_once_and_not_with_every_later_change() -> None:
    before = cluster(storage={}, config={"num.io.threads": 4})
    told = review(None, before, Around()).warnings
    assert len(told) == 1
    assert told[0].startswith("spec.config num.io.threads has no effect: ")
    assert review(before, cluster(storage={}, config={"num.io.threads": 4, "num.partitions": 3}), Around()) == ALLOWED


def test_addresses_without_effect_are_told_once() -> None:
    listeners = [
        {"name": "plain", "advertisedHost": "localhost"},
        {**BALANCED, "preferredNodePortAddressType": "ExternalDNS"},
    ]
    disks = {"volumes": [{"id": 0}]}
    asked = cluster(listeners=listeners, storage=disks)
    assert review(None, asked, Around()).warnings == (
        "spec.listeners[0].advertisedHost has no effect: pods are told each broker's own name",
        (
            "spec.listeners[1].preferredNodePortAddressType has no effect: "
            "it is for the type nodeport without advertisedHost"
        ),
    )
    assert review(asked, cluster(listeners=listeners, storage=disks, brokers={"replicas": 3}), Around()) == ALLOWED


def test_disks_that_nobody_asked_for_are_told_once() -> None:
    (told,) = review(None, cluster(), Around()).warnings
    assert told == "spec.storage is left out: each broker gets a disk of 10Gi, which can grow and never shrink"
    assert review(cluster(), cluster(pause=True), Around()).warnings == ()
    assert review(None, cluster(storage={"volumes": [{"id": 0}]}), Around()).warnings == ()


def annotated(**annotations: str) -> Json:
    declared = cluster(storage={"volumes": [{"id": 0}]})
    named = {f"barnabas.dev/{name}": value for name, value in annotations.items()}
    return {**declared, "metadata": {**declared["metadata"], "annotations": named}}


def test_a_word_that_approves_no_rebalance_is_told() -> None:
    told = ("the annotation barnabas.dev/rebalance is yes, which has no effect; allowed: approve",)
    assert review(annotated(), annotated(rebalance="yes"), Around()).warnings == told
    assert review(None, annotated(rebalance="yes"), Around()).warnings == told
    assert review(annotated(rebalance="yes"), annotated(rebalance="yes"), Around()) == ALLOWED
    assert review(annotated(), annotated(rebalance="approve"), Around()) == ALLOWED


DELETED: Mapping[str, tuple[Json, tuple[str, ...]]] = {
    "with all disks kept": ({"storage": {"volumes": [{"id": 0}]}}, ()),
    "with disks that go, though it keeps all else": (
        {"storage": {"volumes": [{"id": 0, "deleteClaim": True}, {"id": 1}, {"id": 2, "deleteClaim": True}]}},
        (
            (
                "deleteClaim is true: the records on volume 0, 2 of each broker go with Cluster main, though "
                "spec.deletionPolicy is Retain"
            ),
        ),
    ),
    "that takes all along, as it says": (
        {"deletionPolicy": "Delete", "storage": {"volumes": [{"id": 0, "deleteClaim": True}]}},
        (),
    ),
}


@pytest.mark.parametrize("name", DELETED)
def test_who_deletes_a_cluster_is_told_which_records_go(name: str) -> None:
    spec, warnings = DELETED[name]
    old = {"kind": "Cluster", "metadata": {"name": "main"}, "spec": spec}
    assert review(old, None, Around()) == Verdict(None, warnings)
