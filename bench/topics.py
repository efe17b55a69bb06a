"""Topics for the rows: created, awaited until each partition has a leader, deleted."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.clients.job import NotRun

REQUEST_SECONDS_MAX: Final = 60.0
# Apache Kafka makes the logs of 6,000 partitions only after it has responded.
LEADERS_SECONDS_MAX: Final = 300.0
PAUSE_S: Final = 0.005


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(
    bootstrap: str, names: Sequence[str], partitions: int, replication_factor: int = 1, topics_per_request: int = 100
) -> None:
    """Create the topics; return when a broker names a leader and all in-sync replicas for every partition."""
    admin = _admin(bootstrap)
    try:
        for first in range(0, len(names), topics_per_request):
            some = [
                NewTopic(name, partitions, replication_factor) for name in names[first : first + topics_per_request]
            ]
            for done in admin.create_topics(some, request_timeout=REQUEST_SECONDS_MAX).values():
                done.result(REQUEST_SECONDS_MAX)
        _await_leaders(admin, set(names), partitions, replication_factor)
    except KafkaException as error:
        raise NotRun(f"create_topics: {error}") from None


def _await_leaders(admin: AdminClient, names: set[str], partitions: int, replication_factor: int) -> None:
    deadline = time.monotonic() + LEADERS_SECONDS_MAX
    while time.monotonic() < deadline:
        listed = admin.list_topics(timeout=REQUEST_SECONDS_MAX).topics
        led = {
            name
            for name, topic in listed.items()
            if len(topic.partitions) == partitions
            and all(each.leader >= 0 and len(each.isrs) == replication_factor for each in topic.partitions.values())
        }
        if names <= led:
            return
        time.sleep(PAUSE_S)
    raise NotRun(f"partitions without a leader after {LEADERS_SECONDS_MAX:.0f} s")


def delete(bootstrap: str, names: Sequence[str]) -> None:
    """Delete the topics."""
    try:
        admin = _admin(bootstrap)  # If it were deleted, the requests would be cancelled.
        for done in admin.delete_topics(list(names), request_timeout=REQUEST_SECONDS_MAX).values():
            done.result(REQUEST_SECONDS_MAX)
    except KafkaException as error:
        raise NotRun(f"delete_topics: {error}") from None


@contextmanager
def topic(bootstrap: str, name: str, partitions: int, replication_factor: int = 1) -> Iterator[str]:
    """Make a topic for one run; its files are deleted after log.segment.delete.delay.ms."""
    create(bootstrap, [name], partitions, replication_factor)
    try:
        yield name
    finally:
        delete(bootstrap, [name])
