"""The webhook's refusals and warnings about a Topic, before it is stored."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from barnabas_operator.planning.admission import AdmissionContext, Verdict
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.rules_of_kinds import review
from barnabas_operator.resources.kind import JsonObject

LIVE = ClusterState(
    racks={0: None, 1: None, 2: None},
    topics={"flights": TopicState("id", ((0, 1, 2),) * 6, {}), "a.b": TopicState("i", ((0,),), {})},
)


def topic(name: str = "flights", **spec: object) -> JsonObject:
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


def noted(applied: str) -> JsonObject:
    declared = topic("new", config={"segment.ms": 5})
    declared["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    return declared


ALLOWED = Verdict()
HELD = {**topic(), "status": {"cluster": "one"}}
NEVER_FEWER = "Decreasing partitions is not supported: spec.partitions is"

TOPICS: Mapping[str, tuple[JsonObject | None, JsonObject | None, AdmissionContext, str | None]] = {
    "a good one": (None, topic(partitions=6, replicas=3), AdmissionContext(), None),
    "a status only": (
        topic(partitions=6),
        {**topic(partitions=6), "status": {"partitions": 9}},
        AdmissionContext(),
        None,
    ),
    "fewer partitions": (
        topic(partitions=6),
        topic(partitions=3),
        AdmissionContext(),
        f"{NEVER_FEWER} 3; allowed: 6 or more",
    ),
    "no partitions any more": (
        topic(partitions=6),
        topic(),
        AdmissionContext(),
        f"{NEVER_FEWER} missing; allowed: 6 or more",
    ),
    "fewer than the topic has": (
        None,
        topic(partitions=3),
        AdmissionContext(state=LIVE),
        f"{NEVER_FEWER} 3, but the topic has 6; allowed: 6 or more",
    ),
    "a topic that another has": (
        None,
        topic("mine", topicName="flights"),
        AdmissionContext(taken_by="flights"),
        "topic flights is already managed by the Topic flights; only one Topic resource may manage a topic",
    ),
    "a pause of one whose partitions others have raised": (
        topic(partitions=3),
        topic(partitions=3, pause=True),
        AdmissionContext(state=LIVE),
        None,
    ),
    "a pause of one that another has": (
        topic(),
        topic(pause=True),
        AdmissionContext(taken_by="mine", state=LIVE),
        None,
    ),
    "the end of such a pause": (
        topic(partitions=3, pause=True),
        topic(partitions=3),
        AdmissionContext(state=LIVE),
        f"{NEVER_FEWER} 3, but the topic has 6; allowed: 6 or more",
    ),
    "a config that is none in a pause": (
        topic(),
        topic(pause=True, config={"retention.ms": "soon"}),
        AdmissionContext(state=LIVE),
        "spec.config retention.ms=soon: must be an integer, at least -1",
    ),
    "a topic that collides with another Topic's": (
        None,
        topic("a-b", topicName="c_d"),
        AdmissionContext(state=LIVE, collides_with="c.d"),
        (
            "topic c_d and the topic of the Topic c.d differ only in '.' and '_', "
            "so both topics would have the same name in metrics; choose another name"
        ),
    ),
    "a topic that is there beside one that it collides with": (
        None,
        topic("a.b", partitions=2, replicas=1),
        AdmissionContext(state=LIVE, collides_with="a-b"),
        None,
    ),
    "a change of one that was stored though it collides": (
        topic("c.d"),
        topic("c.d", partitions=2),
        AdmissionContext(state=LIVE, collides_with="c-d"),
        None,
    ),
    "more replicas than brokers": (
        None,
        topic("new", partitions=1, replicas=4),
        AdmissionContext(state=LIVE),
        "spec.replicas is 4; allowed: 1 to 3, the number of brokers",
    ),
    "as many replicas as brokers, of which one restarts": (
        None,
        topic("new", partitions=1, replicas=3),
        AdmissionContext(state=replace(LIVE, racks={0: None, 2: None}, registered=frozenset(range(3)))),
        None,
    ),
    "an internal topic": (
        None,
        topic("x", topicName="__consumer_offsets"),
        AdmissionContext(),
        "spec.topicName is __consumer_offsets, which is an internal topic; choose another name",
    ),
    "a config that is none": (
        None,
        topic(config={"retention.mss": "1"}),
        AdmissionContext(),
        "spec.config retention.mss: is not a setting of a topic; did you mean retention.ms?",
    ),
    "the cluster that has it, said later": (HELD, topic(cluster="one"), AdmissionContext(), None),
    "another cluster, said later": (
        HELD,
        topic(cluster="two"),
        AdmissionContext(),
        "spec.cluster is two; allowed: one (a Topic cannot move to another Cluster), or no value",
    ),
    "a cluster where none has it yet": (topic(), topic(cluster="two"), AdmissionContext(), None),
    "another cluster than the one that has it": (
        {**topic(cluster="one"), "status": {"cluster": "one"}},
        topic(cluster="two"),
        AdmissionContext(),
        "spec.cluster is two; allowed: one (a Topic cannot move to another Cluster)",
    ),
    "a cluster that goes": (
        {**topic(cluster="one"), "status": {"cluster": "one"}},
        topic(),
        AdmissionContext(),
        "spec.cluster is missing; allowed: one (a Topic cannot move to another Cluster)",
    ),
    "a field that is none": (
        None,
        topic(partition=3),
        AdmissionContext(),
        (
            "spec.partition is not a field (did you mean partitions?); allowed: cluster, topicName, partitions, "
            "replicas, config, deletionPolicy, adopt, driftPolicy, pause"
        ),
    ),
    "a value of another type": (
        None,
        topic(partitions="six"),
        AdmissionContext(),
        "spec.partitions is 'six' (string); allowed: an integer from 1 to 10000",
    ),
    "the end of a protected one": (
        topic(deletionPolicy="Protect"),
        None,
        AdmissionContext(),
        "Topic flights is not deleted, because spec.deletionPolicy is Protect; first set Delete or Retain",
    ),
    "the end of another": (topic(deletionPolicy="Delete"), None, AdmissionContext(), None),
}


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_refused_for_invalid_or_conflicting_changes(name: str) -> None:
    old, new, around, refusal = TOPICS[name]
    assert review(old, new, around).refusal == refusal


WITHOUT_SPARE = (
    "min.insync.replicas is 2 (from the Cluster), and the topic has 2 replicas, "
    "so writes with acks=all are refused while any replica is offline"
)
WARNINGS: Mapping[str, tuple[JsonObject | None, JsonObject, AdmissionContext, tuple[str, ...]]] = {
    "more partitions than declared": (
        topic(partitions=6),
        topic(partitions=12),
        AdmissionContext(),
        ("after the change from 6 to 12 partitions, producers write many keys to other partitions than before",),
    ),
    "more partitions than the topic has": (
        None,
        topic(partitions=7, replicas=3),
        AdmissionContext(state=LIVE),
        ("after the change from 6 to 7 partitions, producers write many keys to other partitions than before",),
    ),
    "one replica": (
        None,
        topic("new", replicas=1),
        AdmissionContext(),
        ("spec.replicas is 1, so each partition is offline while its broker is down; topics usually have 3 replicas",),
    ),
    "no spare replica": (
        None,
        topic("new", replicas=2, config={"min.insync.replicas": 2}),
        AdmissionContext(),
        (
            (
                "min.insync.replicas is 2, and the topic has 2 replicas, "
                "so writes with acks=all are refused while any replica is offline"
            ),
        ),
    ),
    "no spare replica by the Cluster's setting": (
        None,
        topic("new", replicas=2),
        AdmissionContext(min_insync_replicas="2"),
        (WITHOUT_SPARE,),
    ),
    "fewer replicas than the Cluster's setting": (
        None,
        topic("new", replicas=2),
        AdmissionContext(min_insync_replicas="3"),
        ("min.insync.replicas is 3 (from the Cluster), but the topic has 2 replicas: writes with acks=all fail",),
    ),
    "a setting of its own above the Cluster's": (
        None,
        topic("new", replicas=2, config={"min.insync.replicas": 1}),
        AdmissionContext(min_insync_replicas="2"),
        (),
    ),
    "nothing": (None, topic("new", partitions=3, replicas=3), AdmissionContext(state=LIVE), ()),
    "a null that kubectl dropped": (
        None,
        noted('{"spec":{"config":{"retention.ms":null,"segment.ms":5}}}'),
        AdmissionContext(),
        (
            (
                "spec.config of the manifest sets retention.ms to null, but kubectl apply removes null values, "
                "so these configs get their defaults; kubectl apply --server-side keeps null values"
            ),
        ),
    ),
    "a note that is none": (None, noted("no JSON"), AdmissionContext(), ()),
    "a note of something else": (None, noted('{"spec":{"config":[1]}}'), AdmissionContext(), ()),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_a_surprising_change_of_a_topic_is_allowed_with_a_warning(name: str) -> None:
    old, new, around, warnings = WARNINGS[name]
    assert review(old, new, around) == Verdict(None, warnings)
