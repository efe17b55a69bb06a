"""Properties of every plan, for any declared topics and any state of a cluster."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.topics.reconcile_plan import plan_evacuation
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    TopicStep,
    describe,
)
from barnabas_operator.planning.topics.topic_plan import plan_topics
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec


def apply(step: TopicStep, cluster: ClusterState) -> ClusterState:
    """Return the cluster after a step."""
    topics = dict(cluster.topics)
    match step:
        case CreateTopic(name, assignments, configs):
            assert name not in topics
            topics[name] = TopicState("new", assignments, dict(configs))
        case IncreasePartitions(name, count, assignments):
            topics[name] = replace(topics[name], partitions=topics[name].partitions + assignments)
            assert len(topics[name].partitions) == count
        case AlterConfigs(name, changes):
            merged = {**topics[name].overrides, **changes}
            kept = {key: value for key, value in merged.items() if value is not None}
            topics[name] = replace(topics[name], overrides=kept)
        case MoveReplicas(name, assignments):
            rows = enumerate(topics[name].partitions)
            moved = tuple(assignments.get(number, row) for number, row in rows)
            topics[name] = replace(topics[name], partitions=moved)
        case DeleteTopic(name, _):
            del topics[name]
    return replace(cluster, topics=topics)


NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c"])
CONFIGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas", "nope"]),
    st.sampled_from([None, 1, 2, "delete", "compact,delete"]),
    max_size=3,
)
SPECS = st.builds(
    TopicSpec,
    topic_name=NAMES,
    partitions=st.none() | st.integers(1, 12),
    replicas=st.none() | st.integers(1, 5),
    config=CONFIGS,
    pause=st.booleans(),
)
DECLARED = st.lists(SPECS, max_size=5).map(
    lambda specs: [Topic(metadata=ObjectMeta(name=f"r{n}"), spec=spec) for n, spec in enumerate(specs)]
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    brokers = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    racks = draw(st.sampled_from([None, "xy"]))
    states = st.builds(
        TopicState,
        topic_id=st.just("id"),
        partitions=st.lists(
            st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=8
        ).map(tuple),
        overrides=st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["1", "2"])),
    )
    return ClusterState(
        racks={broker: racks and racks[n % 2] for n, broker in enumerate(brokers)},
        topics=draw(st.dictionaries(NAMES, states, max_size=3)),
        num_partitions=draw(st.integers(1, 3)),
        default_replication_factor=draw(st.integers(1, 3)),
    ).with_brokers(draw(st.integers(1, 10)))


@given(DECLARED, clusters())
def test_planning_twice_gives_the_same_plan(declared: list[Topic], cluster: ClusterState) -> None:
    assert plan_topics(declared, cluster) == plan_topics(declared, cluster)


def apply_plans(declared: list[Topic], cluster: ClusterState) -> ClusterState:
    plans = plan_topics(declared, cluster)
    for step in (*(step for plan in plans for step in plan.steps), *plan_evacuation(plans, cluster, {})):
        assert describe(step)
        cluster = apply(step, cluster)
    return cluster


@given(DECLARED, clusters())
def test_once_plans_are_applied_nothing_is_left_to_do(declared: list[Topic], cluster: ClusterState) -> None:
    """A second round adds the partitions that did not fit before replicas moved."""
    done = apply_plans(declared, apply_plans(declared, cluster))
    plans = plan_topics(declared, done)
    assert all(plan.steps == () for plan in plans)
    assert plan_evacuation(plans, done, {}) == ()
    assert all(plan.refusal is not None for plan in plans if _has_leaving(plan.resource, done))


def _has_leaving(topic: Topic, cluster: ClusterState) -> bool:
    found = cluster.topics.get(topic.topic_name)
    fits = found is not None and max(map(len, found.targets)) <= len(cluster.homes)
    return found is not None and fits and any(cluster.leaving.intersection(row) for row in found.targets)


@given(DECLARED, clusters())
def test_every_new_partition_has_replicas_on_distinct_brokers_of_the_cluster(
    declared: list[Topic], cluster: ClusterState
) -> None:
    for plan in plan_topics(declared, cluster):
        for step in plan.steps:
            if isinstance(step, CreateTopic | IncreasePartitions):
                assert all(set(replicas) <= set(cluster.racks) for replicas in step.assignments)
                assert all(len(set(replicas)) == len(replicas) >= 1 for replicas in step.assignments)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.text(min_size=1, max_size=8))
def test_partitions_added_later_are_placed_as_if_they_were_created_at_once(
    first: int, added: int, brokers: int, uid: str
) -> None:
    cluster = ClusterState(racks=dict.fromkeys(range(brokers)), topics={})

    def declared(partitions: int) -> Topic:
        spec = TopicSpec(partitions=partitions, replicas=min(3, brokers))
        return Topic(metadata=ObjectMeta(name="t", uid=uid), spec=spec)

    grown = cluster
    for partitions in (first, first + added):
        for step in plan_topics([declared(partitions)], grown)[0].steps:
            grown = apply(step, grown)
    for step in plan_topics([declared(first + added)], cluster)[0].steps:
        cluster = apply(step, cluster)
    assert grown.topics["t"].partitions == cluster.topics["t"].partitions
