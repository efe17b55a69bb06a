"""The other command-line tools of Apache Kafka."""

import json
import re
from pathlib import Path

import pytest

from drivers.broker_under_test import KEPT_FOR_EVER
from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.deadline import wait_for

SERVER = "--bootstrap-server localhost:9092"


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    librdkafka.create_topic(topic, 2, KEPT_FOR_EVER)
    librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 2, timestamp_ms=1000 + n) for n in range(20)])
    return topic


def committed_group(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """Make a group that has committed all records and has no members; return its id."""
    member = librdkafka.join(topic, "reader", [topic])
    wait_for(member.records, lambda records: len(records) == 20)
    member.commit()
    member.leave()
    return topic


def test_topics_are_described_altered_and_deleted(tools: KafkaTools, filled: str) -> None:
    described = tools.check(f"kafka-topics.sh {SERVER} --describe --topic {filled}")
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert "Partition: 1\tLeader: 1\tReplicas: 1\tIsr: 1" in described
    tools.check(f"kafka-topics.sh {SERVER} --alter --topic {filled} --partitions 6")
    wait_for(lambda: "PartitionCount: 6" in tools.check(f"kafka-topics.sh {SERVER} --describe --topic {filled}"))
    decrease = tools.run(f"kafka-topics.sh {SERVER} --alter --topic {filled} --partitions 3")
    assert decrease.status == 1
    assert "partition" in decrease.text
    tools.check(f"kafka-topics.sh {SERVER} --delete --topic {filled}")
    wait_for(lambda: filled not in tools.check(f"kafka-topics.sh {SERVER} --list").splitlines())


def test_topics_are_listed_by_faults_and_config_overrides(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh {SERVER} --create --topic {topic} --partitions 1 --config retention.ms=1234567")
    shown = tools.check(f"kafka-topics.sh {SERVER} --describe --topics-with-overrides")
    assert topic in shown
    assert "retention.ms=1234567" in shown
    for fault in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        shown = tools.check(f"kafka-topics.sh {SERVER} --describe --{fault}-partitions")
        assert (topic in shown) == (fault == "at-min-isr")


def test_an_invalid_topic_name_or_config_is_refused_with_the_reason(tools: KafkaTools, topic: str) -> None:
    bad_name = tools.run(f"kafka-topics.sh {SERVER} --create --topic bad/name --partitions 1")
    assert bad_name.status == 1
    assert "bad/name" in bad_name.text
    bad_config = tools.run(f"kafka-topics.sh {SERVER} --create --topic {topic} --config retention.ms=soon")
    assert bad_config.status == 1
    assert "retention.ms" in bad_config.text


def test_console_tools_pass_keys_headers_and_timestamps(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh {SERVER} --create --topic {topic} --partitions 1")
    tools.check(
        f"kafka-console-producer.sh {SERVER} --topic {topic} --reader-property parse.key=true"
        " --reader-property parse.headers=true",
        "h1:one,h2:two\tkey\tvalue\n",
    )
    read = tools.check(
        f"kafka-console-consumer.sh {SERVER} --topic {topic} --from-beginning --max-messages 1"
        " --formatter-property print.key=true --formatter-property print.headers=true"
        " --formatter-property print.offset=true"
    )
    assert read.strip() == "Offset:0\th1:one,h2:two\tkey\tvalue"


def test_groups_are_listed_with_their_states(tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str) -> None:
    group = committed_group(librdkafka, filled)
    assert group in tools.check(f"kafka-consumer-groups.sh {SERVER} --list").splitlines()
    states = tools.check(f"kafka-consumer-groups.sh {SERVER} --list --state empty")
    assert any(line.split() == [group, "Empty"] for line in states.splitlines())
    assert "Empty" in tools.check(f"kafka-consumer-groups.sh {SERVER} --describe --group {group} --state")
    member = librdkafka.join(group, "the-member", [filled])
    wait_for(member.assignment, lambda held: len(held) == 2)
    described = tools.check(f"kafka-consumer-groups.sh {SERVER} --describe --group {group} --members --verbose")
    assert "the-member" in described
    assert f"{filled}:0,1" in described.replace(f"{filled}(0,1)", f"{filled}:0,1")
    assert "Stable" in tools.check(f"kafka-consumer-groups.sh {SERVER} --describe --group {group} --state")
    member.leave()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("--to-earliest", 0),
        ("--to-latest", 10),
        ("--to-offset 4", 4),
        ("--shift-by -3", 7),
        ("--to-datetime 1970-01-01T00:00:01.010", 5),
        ("--to-current", 10),
    ],
)
def test_offsets_of_a_group_are_reset(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str, target: str, expected: int
) -> None:
    group = committed_group(librdkafka, filled)
    reset = f"kafka-consumer-groups.sh {SERVER} --group {group} --reset-offsets --topic {filled} {target}"
    tools.check(f"{reset} --dry-run")
    assert librdkafka.committed(group, filled) == {0: 10, 1: 10}
    tools.check(f"{reset} --execute")
    assert librdkafka.committed(group, filled) == {0: expected, 1: expected}


def test_a_group_with_members_can_be_neither_reset_nor_deleted(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str
) -> None:
    member = librdkafka.join(filled, "busy", [filled])
    wait_for(member.records, lambda records: len(records) == 20)
    member.commit()
    reset = tools.run(
        f"kafka-consumer-groups.sh {SERVER} --group {filled} --reset-offsets --topic {filled} --to-earliest --execute"
    )
    assert "inactive" in reset.text
    assert "The group is not empty" in tools.run(f"kafka-consumer-groups.sh {SERVER} --delete --group {filled}").text
    assert librdkafka.committed(filled, filled) == {0: 10, 1: 10}
    member.leave()


def test_a_group_and_offsets_of_one_partition_are_deleted(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str
) -> None:
    group = committed_group(librdkafka, filled)
    tools.check(f"kafka-consumer-groups.sh {SERVER} --delete-offsets --group {group} --topic {filled}:1")
    assert librdkafka.committed(group, filled) == {0: 10}
    tools.check(f"kafka-consumer-groups.sh {SERVER} --delete --group {group}")
    assert group not in tools.check(f"kafka-consumer-groups.sh {SERVER} --list").splitlines()


def test_configs_of_topics_are_described_and_altered(tools: KafkaTools, filled: str) -> None:
    about = f"kafka-configs.sh {SERVER} --entity-type topics --entity-name {filled}"
    tools.check(f"{about} --alter --add-config retention.ms=7200000,cleanup.policy=[compact,delete]")
    wait_for(lambda: "retention.ms=7200000" in tools.check(f"{about} --describe"))
    assert "cleanup.policy=compact,delete" in tools.check(f"{about} --describe")
    assert "segment.bytes=1073741824" in tools.check(f"{about} --describe --all")
    tools.check(f"{about} --alter --delete-config retention.ms")
    wait_for(lambda: "retention.ms" not in tools.check(f"{about} --describe"))
    refused = tools.run(f"{about} --alter --add-config retention.ms=soon")
    assert refused.status == 1
    assert "retention.ms" in refused.text


def test_configs_of_brokers_are_described_and_altered(tools: KafkaTools) -> None:
    about = f"kafka-configs.sh {SERVER} --entity-type brokers"
    assert "log.retention.hours=168" in tools.check(f"{about} --entity-name 1 --describe --all")
    tools.check(f"{about} --entity-name 1 --alter --add-config log.cleaner.threads=2")
    wait_for(lambda: "log.cleaner.threads=2" in tools.check(f"{about} --entity-name 1 --describe"))
    tools.check(f"{about} --entity-name 1 --alter --delete-config log.cleaner.threads")
    tools.check(f"{about} --entity-default --alter --add-config log.cleaner.backoff.ms=14000")
    wait_for(lambda: "log.cleaner.backoff.ms=14000" in tools.check(f"{about} --entity-default --describe"))
    tools.check(f"{about} --entity-default --alter --delete-config log.cleaner.backoff.ms")
    refused = tools.run(f"{about} --entity-name 1 --alter --add-config process.roles=broker")
    assert refused.status == 1


def test_configs_of_groups_are_described_altered_and_listed(tools: KafkaTools, topic: str) -> None:
    about, timeout = f"kafka-configs.sh {SERVER} --entity-type groups", "consumer.session.timeout.ms"
    everything = tools.check(f"{about} --entity-name {topic} --describe --all")
    assert re.search(rf"{timeout}=45000 sensitive=false .*DEFAULT_CONFIG:group.{timeout}=45000", everything)
    tools.check(f"{about} --entity-name {topic} --alter --add-config {timeout}=50000")
    changed = wait_for(lambda: tools.check(f"{about} --entity-name {topic} --describe"), lambda text: timeout in text)
    synonyms = f"{{DYNAMIC_GROUP_CONFIG:{timeout}=50000, DEFAULT_CONFIG:group.{timeout}=45000}}"
    assert f"{timeout}=50000 sensitive=false synonyms={synonyms}" in changed
    assert f"configs for group {topic} are" in tools.check(f"{about} --describe")
    for wrong in (f"{timeout}=1", f"{timeout}=soon", "consumer.heartbeat.interval.ms=60000", "retention.ms=1"):
        refused = tools.run(f"{about} --entity-name {topic} --alter --add-config {wrong}")
        assert (refused.status, "InvalidConfiguration" in refused.text) == (1, True), refused.text
        assert wrong.partition("=")[0] in refused.text
    tools.check(f"{about} --entity-name {topic} --alter --delete-config {timeout}")
    wait_for(lambda: topic not in tools.check(f"{about} --describe"))


def test_offsets_are_listed_by_position_and_timestamp(tools: KafkaTools, filled: str) -> None:
    get = f"kafka-get-offsets.sh {SERVER} --topic {filled}"
    assert tools.check(get).split() == [f"{filled}:0:10", f"{filled}:1:10"]
    assert tools.check(f"{get} --time earliest").split() == [f"{filled}:0:0", f"{filled}:1:0"]
    assert tools.check(f"{get} --time max-timestamp").split() == [f"{filled}:0:9", f"{filled}:1:9"]
    assert tools.check(f"{get} --time 1010").split() == [f"{filled}:0:5", f"{filled}:1:5"]


def test_records_are_deleted_up_to_an_offset(tools: KafkaTools, filled: str, tmp_path: Path) -> None:
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": filled, "partition": 0, "offset": 4}]}))
    shown = tools.check(f"kafka-delete-records.sh {SERVER} --offset-json-file {plan}")
    assert f"partition: {filled}-0\tlow_watermark: 4" in shown
    earliest = tools.check(f"kafka-get-offsets.sh {SERVER} --topic {filled} --time earliest").split()
    assert earliest == [f"{filled}:0:4", f"{filled}:1:0"]


@pytest.mark.soak(only=True)
def test_the_verifiable_producer_and_consumer_count_the_same_records(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh {SERVER} --create --topic {topic} --partitions 3")
    sent = tools.check_alone(f"kafka-verifiable-producer.sh {SERVER} --topic {topic} --max-messages 500 --acks -1")
    events = [json.loads(line) for line in sent.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    assert not [event for event in events if event["name"] == "producer_send_error"]
    read = tools.check_alone(
        f"kafka-verifiable-consumer.sh {SERVER} --topic {topic} --group-id {topic} --max-messages 500"
        " --reset-policy earliest"
    )
    consumed = [json.loads(line) for line in read.splitlines()]
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == 500
    assert any(event["name"] == "offsets_committed" and event["success"] for event in consumed)


def test_the_performance_tools_write_and_read_all_records(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh {SERVER} --create --topic {topic} --partitions 2")
    sent = tools.check(
        f"kafka-producer-perf-test.sh --bootstrap-server localhost:9092 --topic {topic} --num-records 20000"
        " --record-size 100 --throughput -1 --command-property acks=all"
    )
    assert "20000 records sent" in sent
    read = tools.check(f"kafka-consumer-perf-test.sh {SERVER} --topic {topic} --num-records 20000 --timeout 20000")
    assert read.splitlines()[-1].split(",")[4].strip() == "20000"


def test_the_broker_reports_its_api_versions_and_cluster_id(tools: KafkaTools) -> None:
    versions = tools.check(f"kafka-broker-api-versions.sh {SERVER}")
    assert "(id: 1 rack: null" in versions
    assert "Produce(0): " in versions
    assert "Cluster ID: " in tools.check(f"kafka-cluster.sh cluster-id {SERVER}")


def test_the_configs_of_a_topic_include_all_of_kafkas(java: RemoteClient, filled: str) -> None:
    described = set(java.topic_configs(filled))
    assert described >= set(java.ask("known_topic_configs")), "Kafka has more topic configs"
    assert not [name for name in described if name.startswith("internal.")]


def test_all_groups_are_described_at_once(tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str) -> None:
    group = committed_group(librdkafka, filled)
    offsets = tools.check(f"kafka-consumer-groups.sh {SERVER} --describe --all-groups --offsets --verbose")
    rows = [line.split()[:7] for line in offsets.splitlines() if line.startswith(f"{group} ")]
    assert rows == [[group, filled, "0", "0", "10", "10", "0"], [group, filled, "1", "0", "10", "10", "0"]]
    assert group in tools.check(f"kafka-groups.sh {SERVER} --list")
    unknown = tools.run(f"kafka-consumer-groups.sh {SERVER} --describe --group {group}-unknown")
    assert "not found" in unknown.text


def test_a_new_group_gets_offsets_by_a_reset(tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str) -> None:
    reset = f"kafka-consumer-groups.sh {SERVER} --group {filled} --reset-offsets --topic {filled}:1"
    exported = tools.check(f"{reset} --to-offset 3 --export --dry-run")
    assert exported.strip().replace('"', "") == f"{filled},1,3"
    tools.check(f"{reset} --by-duration PT1H --execute")
    assert librdkafka.committed(filled, filled) == {1: 10}


def test_topics_are_created_with_a_replica_assignment(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh {SERVER} --create --topic {topic} --replica-assignment 1,1")
    tools.check(f"kafka-topics.sh {SERVER} --alter --topic {topic} --partitions 3 --replica-assignment 1,1,1")
    described = tools.check(f"kafka-topics.sh {SERVER} --describe --topic {topic}")
    assert "PartitionCount: 3" in described
    unknown_broker = tools.run(f"kafka-topics.sh {SERVER} --create --topic {topic}-b --replica-assignment 1,7")
    assert unknown_broker.status == 1
    assert "includes broker 7" in unknown_broker.text


def test_a_console_consumer_of_several_topics_prints_timestamp_and_partition(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, topic: str
) -> None:
    for name in ("a", "b"):
        librdkafka.create_topic(f"{topic}.{name}", 1, KEPT_FOR_EVER)
        librdkafka.produce(f"{topic}.{name}", [Message(name.encode(), timestamp_ms=1_000)])
    read = tools.check(
        f"kafka-console-consumer.sh {SERVER} --include {topic}[.](a|b) --from-beginning --max-messages 2"
        " --isolation-level read_committed --formatter-property print.timestamp=true"
        " --formatter-property print.partition=true"
    )
    assert sorted(read.splitlines()) == ["CreateTime:1000\tPartition:0\ta", "CreateTime:1000\tPartition:0\tb"]


def test_the_metadata_quorum_is_described_with_its_leader(tools: KafkaTools) -> None:
    status = tools.check(f"kafka-metadata-quorum.sh {SERVER} describe --status")
    assert re.search(r"LeaderId:\s+1\n", status)
    assert re.search(r"MaxFollowerLag:\s+0\n", status)
    replicas = tools.check(f"kafka-metadata-quorum.sh {SERVER} describe --replication")
    assert re.search(r"\bLeader\b", replicas)


def test_features_are_described_and_upgraded(tools: KafkaTools) -> None:
    described = tools.check(f"kafka-features.sh {SERVER} describe")
    assert re.search(r"Feature: eligible.leader.replicas.version\s.*FinalizedVersionLevel: 1\b", described)
    assert re.search(r"Feature: barnabas.metadata.version\s.*FinalizedVersionLevel: 5\b", described)
    assert re.search(r"Feature: group.version\s.*FinalizedVersionLevel: 1\b", described)
    assert re.search(r"Feature: share.version\s.*FinalizedVersionLevel: 2\b", described)
    assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2\b", described)
    tools.check(f"kafka-features.sh {SERVER} upgrade --feature eligible.leader.replicas.version=1")
    refused = tools.run(f"kafka-features.sh {SERVER} upgrade --feature eligible.leader.replicas.version=7")
    assert refused.status == 1


def test_the_log_levels_of_a_running_broker_are_changed(tools: KafkaTools, peer: str) -> None:
    entity = "--entity-type broker-loggers --entity-name 1"
    logger = "barnabas_broker.replication" if peer == "barnabas" else "org.apache.kafka"
    tools.check(f"kafka-configs.sh {SERVER} --alter {entity} --add-config {logger}=DEBUG")
    assert f"{logger}=DEBUG" in tools.check(f"kafka-configs.sh {SERVER} --describe {entity}")
    tools.check(f"kafka-configs.sh {SERVER} --alter {entity} --delete-config {logger}")
    refused = tools.run(f"kafka-configs.sh {SERVER} --alter {entity} --add-config {logger}=LOUD")
    assert "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in refused.text


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("kafka-acls.sh {} --list", "No Authorizer is configured"),
        ("kafka-configs.sh {} --describe --entity-type users", ""),
        ("kafka-configs.sh {} --describe --entity-type clients", ""),
        ("kafka-configs.sh {} --describe --entity-type ips", ""),
        ("kafka-configs.sh {} --describe --entity-type groups", ""),
        ("kafka-configs.sh {} --describe --entity-type groups --entity-name readers", "readers"),
        ("kafka-client-metrics.sh {} --list", ""),
        ("kafka-transactions.sh {} list", "TransactionalId"),
    ],
)
def test_requests_about_unused_features_are_answered(tools: KafkaTools, command: str, answer: str) -> None:
    ran = tools.run(command.format(SERVER))
    assert "UnsupportedVersion" not in ran.text
    assert answer in ran.text


def test_quotas_are_set_described_and_removed(tools: KafkaTools) -> None:
    about = f"kafka-configs.sh {SERVER} --entity-type clients --entity-name loader"
    tools.check(f"{about} --alter --add-config producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576.0" in tools.check(f"{about} --describe")
    assert tools.run(f"{about} --alter --add-config producer_byte_rate=-1").status == 1
    tools.check(f"{about} --alter --delete-config producer_byte_rate")
    assert "producer_byte_rate" not in tools.check(f"{about} --describe")
