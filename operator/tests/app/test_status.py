"""`barnabas status` with a running cluster, and without one."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas_operator.app import cluster_options, status
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import RunningUp, topic_manifest

Run = Callable[..., subprocess.CompletedProcess[str]]


def produce(bootstrap: str, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"value", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def read(bootstrap: str, group: str, topic: str, count: int) -> Consumer:
    """Return a member of the group that has read and committed `count` records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    for _ in range(count):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


def test_status_reports_topics_groups_and_lag_also_of_groups_without_members(up: RunningUp) -> None:
    up.write("topics.yaml", topic_manifest("flights", "partitions: 2"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    produce(up.bootstrap, "flights", {0: 3, 1: 5})
    active = read(up.bootstrap, "boards", "flights", 8)
    read(up.bootstrap, "archive", "flights", 8).close()
    produce(up.bootstrap, "flights", {1: 4})

    report = json.loads(barnabas_here("status", "--bootstrap", up.bootstrap, "-o", "json").stdout)
    (topic,) = [topic for topic in report["topics"] if not topic["internal"]]
    assert (topic["name"], topic["records"], topic["topic_id"]) == ("flights", 12, up.status("flights").topic_id)
    ends = [(part["partition"], part["leader"], part["isr"], part["end_offset"]) for part in topic["partitions"]]
    assert ends == [(0, 0, [0], 3), (1, 0, [0], 9)]
    assert all(part["size_bytes"] > 0 and part["state"] == "ok" for part in topic["partitions"])
    groups = {group["group_id"]: group for group in report["groups"]}
    assert [(name, groups[name]["state"], groups[name]["lag"]) for name in ("archive", "boards")] == [
        ("archive", "Empty", 4),
        ("boards", "Stable", 4),
    ]
    assert [(part["partition"], part["lag"], part["client_id"]) for part in groups["boards"]["lags"]] == [
        (0, 0, "reader"),
        (1, 4, "reader"),
    ]
    assert [part["client_id"] for part in groups["archive"]["lags"]] == [None, None]

    text = barnabas_here("status", "--data-dir", str(up.data)).stdout
    assert [line.split() for line in text.splitlines() if line.startswith("boards")] == [
        ["boards", "classic", "Stable", "1", "flights", "4"],
        ["boards", "flights", "0", "3", "3", "0", "reader"],
        ["boards", "flights", "1", "5", "9", "4", "reader"],
    ]
    assert "partitions: every replica is in sync" in text
    assert "__consumer_offsets" not in text
    assert "__consumer_offsets" in barnabas_here("status", "--data-dir", str(up.data), "-o", "wide").stdout
    active.close()


def test_status_names_the_given_address_if_no_broker_answers(barnabas: Run) -> None:
    done = barnabas("status", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no broker answers at 127.0.0.1:1 (--bootstrap)" in done.stdout
    assert "barnabas up" not in done.stdout, "a user who names brokers needs no advice to start others"


def test_status_says_how_to_start_a_cluster_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default address is replaced because another program may listen there."""
    monkeypatch.setattr(cluster_options, "DEFAULT_BOOTSTRAP", "127.0.0.1:1")
    assert status.main(["--data-dir", str(tmp_path)]) == 1
    assert "start a cluster with `barnabas up -f examples/quickstart/`" in capsys.readouterr().out


def test_an_address_without_a_port_is_bad_usage(barnabas: Run) -> None:
    done = barnabas("status", "--bootstrap", "somewhere")
    assert done.returncode == 2
    assert "'somewhere'; allowed: one or more HOST:PORT or [IPV6]:PORT, separated by commas" in done.stderr


def test_a_stopped_cluster_is_named_with_its_data_directory(up: RunningUp) -> None:
    up.start()
    up.stop()
    done = barnabas_here("status", "--data-dir", str(up.data))
    assert done.returncode == 1
    assert f"no broker answers at {up.bootstrap} (the address of the cluster in {up.data})" in done.stdout


def test_tail_prints_records_without_control_characters_and_status_only_groups(up: RunningUp) -> None:
    up.write("topics.yaml", topic_manifest("flights", "partitions: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("flights", b"\x1b[31mred\xff", b"key", timestamp=1_700_000_000_000)
    producer.produce("flights", None, None, timestamp=1_700_000_000_001)
    assert producer.flush(PATIENCE_S) == 0
    read(up.bootstrap, "boards", "flights", 2).close()

    ended = barnabas_here("tail", "flights", "--from=earliest", "--limit=2", "--bootstrap", up.bootstrap)
    assert ended.stdout.splitlines() == [
        r"2023-11-14T22:13:20.000Z 0:0 key \x1b[31mred\xff",
        "2023-11-14T22:13:20.001Z 0:1 - -",
    ]
    absent = barnabas_here("tail", "flight", "--bootstrap", up.bootstrap)
    assert (absent.returncode, "there is no topic 'flight'" in absent.stderr) == (1, True)
    groups = barnabas_here("status", "--groups", "--bootstrap", up.bootstrap).stdout
    assert ("boards" in groups, "PARTITIONS" in groups) == (True, False)
