"""Sample views of clusters for tests of decisions."""

import random
from collections.abc import Sequence
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.alter_configs import ClusterView, view_cluster
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic, decide_create_topics
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ApiError

SEED = 42


def registration(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, UUID(int=broker_id), (), rack, fenced=fenced)


def a_topic(name: str, *replicas: Sequence[int], configs: dict[str, str] | None = None) -> TopicDocument:
    states = tuple(PartitionState(tuple(row), row[0], 0, tuple(row)) for row in replicas or ((0,),))
    return TopicDocument(name, UUID(int=1000 + len(name)), states, configs or {})


def a_cluster(brokers: int | Sequence[BrokerRegistration] = 3, *topics: TopicDocument, **settings: str) -> ClusterView:
    registrations = [registration(number) for number in range(brokers)] if isinstance(brokers, int) else brokers
    return view_cluster(
        {topic.name: topic for topic in topics},
        {each.broker_id: each for each in registrations},
        parse_broker_config({name.replace("_", "."): value for name, value in settings.items()}),
        {},
    )


def create(view: ClusterView, topic: NewTopic, seed: int = SEED) -> TopicDocument:
    outcome = decide_create_topics(view, [topic], random.Random(seed))[topic.name]
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome
