"""F36: a topic's replicas go where Kafka's own rule would put them, with the topic's hash for its random numbers."""

from barnabas_operator.planning.topics.topic_plan import place_partitions, placement_seed
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec

# Four brokers, five partitions, three replicas: the worked example of the Chinese introduction to Kafka.
WORKED_EXAMPLE = ((3, 1, 2), (0, 2, 3), (1, 3, 0), (2, 0, 1), (3, 2, 0))
WORKED_EXAMPLE_SEED = (3, 1)


def topic(uid: str) -> Topic:
    return Topic(metadata=ObjectMeta(name="t", uid=uid), spec=TopicSpec())


def uid_with_seed(seed: tuple[int, int], brokers: int) -> str:
    return next(str(n) for n in range(1000) if placement_seed(topic(str(n)), brokers) == seed)


def test_the_placement_matches_the_worked_example_of_four_brokers() -> None:
    chosen = topic(uid_with_seed(WORKED_EXAMPLE_SEED, 4))
    assert place_partitions(chosen, dict.fromkeys(range(4)), range(5), 3) == WORKED_EXAMPLE


def test_topics_begin_on_different_brokers() -> None:
    firsts = [placement_seed(topic(str(n)), 4)[0] for n in range(400)]
    assert all(60 <= firsts.count(broker) <= 140 for broker in range(4))


def test_a_topic_without_uid_is_placed_by_its_name() -> None:
    named = Topic(metadata=ObjectMeta(name="t"), spec=TopicSpec(topic_name="Flights"))
    renamed = Topic(metadata=ObjectMeta(name="other"), spec=TopicSpec(topic_name="Flights"))
    assert placement_seed(named, 5) == placement_seed(renamed, 5)


def test_no_two_replicas_share_a_rack_if_there_are_enough_racks() -> None:
    racks = {0: "x", 1: "x", 2: "y", 3: "y", 4: "z", 5: "z"}
    placed = place_partitions(topic("u"), racks, range(12), 3)
    assert all({racks[broker] for broker in replicas} == {"x", "y", "z"} for replicas in placed)
