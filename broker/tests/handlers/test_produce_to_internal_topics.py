"""Produce to the internal topics of the brokers."""

from pathlib import Path
from uuid import UUID

import pytest
from one_replica import HERE, OTHER, led
from producing_broker import Client, Producing, true_batch

from barnabas_broker.handlers.produce import ADMIN_CLIENT_ID
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.model import TopicDocument
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import INTERNAL_TOPICS


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize(
    ("client_id", "leader", "error", "end_offset"),
    [
        ("copier", HERE, ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
        ("copier", OTHER, ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
        (ADMIN_CLIENT_ID, HERE, ErrorCode.NONE, 3),
        (ADMIN_CLIENT_ID, OTHER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0),
    ],
)
def test_only_kafkas_admin_tools_can_write_to_an_internal_topic(
    tmp_path: Path, topic: str, client_id: str, leader: int, error: ErrorCode, end_offset: int
) -> None:
    broker = Producing(tmp_path)
    broker.show_only((topic_key(topic), TopicDocument(topic, UUID(int=9), (led(leader, 1, leader, replicas=2),), {})))
    client = Client(broker, client_id)
    client.topic = topic
    assert client.send(true_batch()).error_code == error
    assert broker.replicas.lookup.find(topic, None, 0).log.log_end_offset == end_offset
