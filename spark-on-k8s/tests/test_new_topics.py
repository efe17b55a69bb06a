"""New topics, which brokers learn of one after the other. No Spark runs here."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas_jobs.kafka import admin_client, topics
from barnabas_jobs.kafka.admin_client import LeaderMissing, TopicMissing
from barnabas_jobs.kafka.topics import Cluster, settings_of_new_topic
from barnabas_jobs.planning.archived import Bounds
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.restore_plan import Origin, TopicSetting

UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART
NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION


def answer(value: object) -> "Future[Any]":
    """Return a future with the value, or with the failure if the value is an error code."""
    future: Future[Any] = Future()
    if isinstance(value, int):
        future.set_exception(KafkaException(KafkaError(value)))
    else:
        future.set_result(value)
    return future


class Admin:
    """An admin client whose first answers are that the topic is unknown, or that partition 1 has another leader."""

    unknown = 0
    not_leading = 0

    def __init__(self, _: Mapping[str, object]) -> None:
        self.made: list[Any] = []

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=())

    def create_topics(self, new: list[Any]) -> dict[str, "Future[Any]"]:
        self.made += new
        return {each.topic: answer(None) for each in new}

    def describe_topics(self, _: object) -> dict[str, "Future[Any]"]:
        if self.unknown:
            self.unknown -= 1
            return {"flights": answer(UNKNOWN)}
        partitions = [SimpleNamespace(id=number, leader=SimpleNamespace(id=number)) for number in range(2)]
        return {"flights": answer(SimpleNamespace(topic_id="id", partitions=partitions))}

    def describe_configs(self, resources: list[Any]) -> dict[Any, "Future[Any]"]:
        unknown, self.unknown = self.unknown, max(0, self.unknown - 1)
        return {each: answer(UNKNOWN if unknown else {}) for each in resources}

    def list_offsets(self, wanted: Iterable[TopicPartition], **_: object) -> dict[TopicPartition, "Future[Any]"]:
        answers = {place: answer(SimpleNamespace(offset=0)) for place in wanted}
        if self.not_leading:
            self.not_leading -= 1
            answers |= {place: answer(NOT_LEADER) for place in answers if place.partition == 1}
        return answers


@pytest.mark.parametrize(("unknown", "not_leading"), [(0, 0), (2, 0), (1, 1), (0, 3)])
def test_create_topic_returns_when_the_topic_is_known_and_has_leaders(
    monkeypatch: pytest.MonkeyPatch, unknown: int, not_leading: int
) -> None:
    monkeypatch.setattr(admin_client, "AdminClient", Admin)
    monkeypatch.setattr(Admin, "unknown", unknown)
    monkeypatch.setattr(Admin, "not_leading", not_leading)
    cluster = Cluster("localhost:9092")
    cluster.create_topic("flights", 2, {})
    assert cluster.bounds(cluster.topic("flights")) == {0: Bounds(0, 0), 1: Bounds(0, 0)}


@pytest.mark.parametrize(("unknown", "not_leading"), [(10**9, 0), (0, 10**9)])
def test_create_topic_fails_if_the_brokers_never_know_the_topic(
    monkeypatch: pytest.MonkeyPatch, unknown: int, not_leading: int
) -> None:
    monkeypatch.setattr(admin_client, "AdminClient", Admin)
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(Admin, "unknown", unknown)
    monkeypatch.setattr(Admin, "not_leading", not_leading)
    with pytest.raises(JobFailed, match="topic=flights: the new topic has no leaders after 0 s; run the job again"):
        Cluster("localhost:9092").create_topic("flights", 2, {})


def test_requests_about_a_new_topic_are_retried_until_a_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leads none of its partitions may learn of the topic last."""
    monkeypatch.setattr(admin_client, "AdminClient", Admin)
    cluster = Cluster("localhost:9092")
    assert not cluster.has("flights")
    cluster.create_topic("flights", 2, {})
    monkeypatch.setattr(cluster._admin, "unknown", 2)
    assert cluster.has("flights")
    assert cluster.topic("flights").partitions == [0, 1]
    monkeypatch.setattr(cluster._admin, "unknown", 2)
    assert cluster.settings("flights") == {}


def test_a_new_topic_that_was_deleted_is_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "AdminClient", Admin)
    cluster = Cluster("localhost:9092")
    cluster.create_topic("flights", 2, {})
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(cluster._admin, "unknown", 10**9)
    with pytest.raises(TopicMissing, match="topic=flights: the cluster at localhost:9092 has no such topic"):
        cluster.topic("flights")


def test_the_bounds_of_a_topic_are_requested_again_during_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "AdminClient", Admin)
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.2)
    cluster = Cluster("localhost:9092")
    cluster.create_topic("flights", 2, {})
    flights = cluster.topic("flights")
    monkeypatch.setattr(cluster._admin, "not_leading", 3)
    assert cluster.bounds(flights) == {0: Bounds(0, 0), 1: Bounds(0, 0)}
    monkeypatch.setattr(cluster._admin, "not_leading", 10**9)
    with pytest.raises(LeaderMissing, match="topic=flights: the cluster at localhost:9092 answered"):
        cluster.bounds(flights)


def test_a_config_source_of_a_newer_broker_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = {"retention.ms": {"value": "7", "config_source": "DYNAMIC_GROUP_CONFIG"}}
    admin = SimpleNamespace(
        create_topics=lambda *_, **__: {"topics": [{"name": "flights", "error_code": 0, "configs": configs}]}
    )
    monkeypatch.setattr(topics, "admin_client", lambda *_: nullcontext(admin))
    assert settings_of_new_topic("here:9092", "flights", 1, {}) == {"retention.ms": TopicSetting("7", Origin.UNKNOWN)}
