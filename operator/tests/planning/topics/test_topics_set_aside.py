"""A declared topic that the metadata has lost is not made anew while brokers keep its logs: those could not return."""

from dataclasses import replace

import pytest

from barnabas_core.config.stray_logs import STRAY_LOGS_NAMED_MAX
from barnabas_operator.planning.cluster_state import ClusterState, StrayLog, TopicState
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.topics.topic_plan import plan_topics
from barnabas_operator.planning.topics.topic_steps import CreateTopic
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec

UNIQUE = "0123456789abcdef0123456789abcdef"
FLIGHTS = Topic(metadata=ObjectMeta(name="flights"), spec=TopicSpec())
LONG = "f" * 240


def stray(partition_dir: str, broker_id: int = 0) -> StrayLog:
    ending = f".{UNIQUE}-stray"
    return StrayLog(broker_id=broker_id, directory=f"/data/0/{partition_dir}{ending}", size_bytes=1)


def refusal_of(topic: Topic, *strays: StrayLog, topics: tuple[str, ...] = ()) -> Refusal | None:
    there = {name: TopicState("id", ((0,),), {}) for name in topics}
    (plan,) = plan_topics([topic], ClusterState({0: None, 1: None}, there, strays=strays))
    assert (plan.refusal is None) == (plan.steps != () or bool(topics))
    assert all(isinstance(step, CreateTopic) for step in plan.steps)
    return plan.refusal


def test_a_topic_whose_logs_are_set_aside_waits_and_says_what_to_do() -> None:
    assert refusal_of(FLIGHTS, stray("flights-0"), stray("flights-11", broker_id=1), stray("trains-0")) == Refusal(
        "LogsSetAside",
        f"its logs are set aside: broker 0 /data/0/flights-0.{UNIQUE}-stray, "
        f"broker 1 /data/0/flights-11.{UNIQUE}-stray; they return with their topics' metadata; "
        "to begin anew without their records, delete these directories and restart their brokers,"
        " or create the topic yourself",
    )


def test_a_topic_whose_logs_are_on_a_disk_that_is_away_waits_and_says_so() -> None:
    away = replace(stray("flights-0"), offline=True)
    assert refusal_of(FLIGHTS, away) == Refusal(
        "LogsSetAside",
        f"its logs are set aside: broker 0 /data/0/flights-0.{UNIQUE}-stray (its log dir is offline); "
        "they return with their topics' metadata; to begin anew without their records, delete these directories, "
        "once their log dirs are online, and restart their brokers, or create the topic yourself",
    )


@pytest.mark.parametrize("other", ["trains-0", "flights-2-0", "flight-0", "my-flights-0"])
def test_logs_of_other_topics_keep_none_from_being_created(other: str) -> None:
    assert refusal_of(FLIGHTS, stray(other)) is None


def test_a_topic_that_is_there_goes_on_beside_older_logs_of_its_name() -> None:
    assert refusal_of(FLIGHTS, stray("flights-0"), topics=("flights",)) is None


def test_a_long_name_is_found_though_its_directory_cuts_it() -> None:
    topic = Topic(metadata=ObjectMeta(name="long"), spec=TopicSpec(topic_name=LONG))
    room = 255 - len(f"-0.{UNIQUE}-stray")
    assert refusal_of(topic, stray(f"{LONG[:room]}-0")) is not None
    assert refusal_of(topic, stray(f"{LONG[: room - 1]}-0")) is None


def test_no_topic_is_created_while_a_broker_may_have_more_logs_than_it_names() -> None:
    many = [stray(f"trains-{number}", broker_id=1) for number in range(STRAY_LOGS_NAMED_MAX)]
    assert refusal_of(FLIGHTS, *many[1:]) is None
    assert refusal_of(FLIGHTS, *many) == Refusal(
        "LogsSetAside",
        "broker 1 has set aside 1000 logs or more, perhaps also of this topic; "
        "they return with their topics' metadata; delete those that nobody needs",
    )
