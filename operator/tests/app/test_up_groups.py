"""`barnabas up` over manifests of consumer groups, and `barnabas status --watch`."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas_kafka.connection import connected_client
from barnabas_operator.app.child_process import read_status
from barnabas_operator.kafka.step_requests import overrides
from barnabas_operator.resources.consumer_group import ConsumerGroupStatus
from barnabas_operator.resources.kind import (
    DEAD_LETTERS_ENABLED,
    OFFSETS_RESET,
    READY,
    WITHIN_OBJECTIVE,
    condition_of,
)
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import RunningUp, topic_manifest
from harness.stock_client import StockClient

FLIGHTS = topic_manifest("flights", "partitions: 1")
BILLING = """\
apiVersion: barnabas.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  deletionPolicy: DeleteGroup
  lagObjective: {maxRecords: 5, for: 0s}
"""
RESET = BILLING + "  offsets: {reset: {id: again, to: {earliest: {}}}}\n"


def status(up: RunningUp) -> ConsumerGroupStatus:
    known = read_status(up.data)
    groups = known.groups if known is not None else ()
    return next((each.status for each in groups if each.status is not None), ConsumerGroupStatus())


def said(up: RunningUp, kind: str) -> str:
    """The reason of a condition."""
    found = condition_of(status(up).conditions, kind)
    return found.reason if found is not None else ""


def commit(up: RunningUp, offset: int) -> None:
    StockClient(up.bootstrap).commit("billing", TopicPartition("flights", 0, offset))


def committed(up: RunningUp) -> int:
    consumer = Consumer({"bootstrap.servers": up.bootstrap, "group.id": "billing"})
    (found,) = consumer.committed([TopicPartition("flights", 0)], timeout=PATIENCE_S)
    consumer.close()
    return int(found.offset)


def test_a_declared_group_is_watched_reset_and_deleted(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.write("groups.yaml", BILLING)
    up.start()
    wait_for(lambda: said(up, READY) == "Reconciled")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for _ in range(10):
        producer.produce("flights", b"x")
    producer.flush()
    commit(up, 2)
    up.write("groups.yaml", BILLING.replace("maxRecords: 5", "maxRecords: 6"))  # A change makes `up` look at once.
    wait_for(lambda: (status(up).lag, said(up, WITHIN_OBJECTIVE)) == (8, "LagObjectiveMissed"))
    up.write("groups.yaml", RESET)
    wait_for(lambda: said(up, OFFSETS_RESET) == "ResetDone")
    assert committed(up) == 0
    (up.manifests / "groups.yaml").unlink()
    admin = AdminClient({"bootstrap.servers": up.bootstrap})
    wait_for(
        lambda: [each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid],
        lambda there: there == [],
        PATIENCE_S,
    )


SHARE = """\
apiVersion: barnabas.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  type: share
  deletionPolicy: DeleteGroup
  config: {share.auto.offset.reset: earliest, share.delivery.count.limit: 3}
"""
SHARE_RESET = SHARE + "  offsets: {reset: {id: again, to: {earliest: {}}, topics: [flights]}}\n"


def taken(up: RunningUp, count: int) -> None:
    """Take and acknowledge this number of records as a member of the share group."""
    consumer = ShareConsumer({"bootstrap.servers": up.bootstrap, "group.id": "billing"})
    consumer.subscribe(["flights"])
    found = list[bytes | None]()
    while len(found) < count:
        found.extend(each.value() for each in consumer.poll(1.0))
    consumer.commit_sync()
    consumer.close()


def group_configs(client: Any) -> Mapping[str, str]:
    return overrides(client, ["billing"], "group")["billing"]


def test_a_share_group_is_configured_reset_checked_and_deleted(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.write("groups.yaml", SHARE)
    up.start()
    wait_for(lambda: said(up, READY) == "Reconciled")
    client = connected_client(up.bootstrap, PATIENCE_S, "the-test")
    assert group_configs(client) == {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"}
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for _ in range(10):
        producer.produce("flights", b"x")
    producer.flush()
    taken(up, 10)
    up.write("groups.yaml", SHARE.replace("3", "4").replace("earliest, ", "latest, "))
    wait_for(lambda: (status(up).type, status(up).lag) == ("share", 0))
    wait_for(lambda: group_configs(client), lambda found: found["share.auto.offset.reset"] == "latest")
    up.write("groups.yaml", SHARE_RESET)
    wait_for(lambda: said(up, OFFSETS_RESET) == "ResetDone")
    up.write("groups.yaml", SHARE_RESET + "  lagObjective: {maxRecords: 5, for: 0s}\n")
    wait_for(lambda: (status(up).lag, said(up, WITHIN_OBJECTIVE)) == (10, "LagObjectiveMissed"))
    up.write("groups.yaml", SHARE.replace("type: share", "type: consumer"))
    wait_for(lambda: said(up, READY) == "GroupTypeDiffers")
    up.write("groups.yaml", SHARE)
    wait_for(lambda: said(up, READY) == "Reconciled")
    (up.manifests / "groups.yaml").unlink()
    wait_for(client.list_groups, lambda there: not there)
    client.close()


def test_a_share_group_says_why_its_records_get_no_dead_letters(up: RunningUp) -> None:
    letters = "config: {errors.deadletterqueue.group.enable: %s}"
    up.write("topics.yaml", FLIGHTS)
    up.write("groups.yaml", SHARE.replace("earliest,", "earliest, errors.deadletterqueue.topic.name: dlq.flights,"))
    up.start()
    wait_for(lambda: said(up, DEAD_LETTERS_ENABLED) == "TopicNotFound")
    up.write("letters.yaml", topic_manifest("dlq.flights", "partitions: 1", letters % "false"))
    wait_for(lambda: said(up, DEAD_LETTERS_ENABLED) == "TopicNotEnabled")
    up.write("letters.yaml", topic_manifest("dlq.flights", "partitions: 1", letters % "true"))
    wait_for(lambda: said(up, DEAD_LETTERS_ENABLED) == "TopicEnabled")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("flights", b"x")
    producer.flush()
    taken(up, 1)
    up.write("groups.yaml", SHARE.replace("earliest,", "earliest, errors.deadletterqueue.topic.name: flights,"))
    wait_for(lambda: said(up, DEAD_LETTERS_ENABLED) == "TopicIsSource")


def test_status_watch_into_a_file_prints_a_line_when_a_group_changes(up: RunningUp, tmp_path: Path) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    # A shell makes its background processes ignore SIGINT, and their children inherit that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "barnabas", "status", "--watch"]
    command += ["--bootstrap", up.bootstrap]
    log = tmp_path / "watch.log"
    with log.open("wb") as out:
        watching = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(log.read_text, lambda text: "no consumer groups" in text, PATIENCE_S)
        commit(up, 0)
        wait_for(log.read_text, lambda text: "billing: Empty, 0 members, lag 0" in text, PATIENCE_S)
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 0
    assert log.read_text().count("no consumer groups") == 1
