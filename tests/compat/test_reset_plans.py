"""A declared reset plans the same offsets as Apache Kafka's own tool in every mode."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas_kafka.connection import connected_client
from barnabas_operator.kafka.group_admin import GroupAdmin, plan_now
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.reset_plan import ResetPlan
from barnabas_operator.resources.consumer_group import Reset
from drivers.broker_under_test import KEPT_FOR_EVER
from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import PATIENCE_S
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

SERVER = "--bootstrap-server localhost:9092"
FLIGHTS, PLANES, BARE = "resets-flights", "resets-planes", "resets-bare"
TOPICS = {FLIGHTS: 3, PLANES: 2, BARE: 1}
READER, OTHER, AHEAD = "resets-reader", "resets-other", "resets-ahead"
COMMITTED = {
    READER: {(FLIGHTS, 0): 7, (FLIGHTS, 1): 20, (PLANES, 1): 3},
    OTHER: {(FLIGHTS, 0): 12, (PLANES, 0): 5},
    AHEAD: {(FLIGHTS, 0): 500, (FLIGHTS, 1): 1},
}
RECORDS = 20
FIRST_MS = 1_700_000_000_000
PLANNED = re.compile(r"^(\S+)\s+(\S+)\s+(\d+)\s+(\d+)\s*$", re.MULTILINE)
Planned = dict[tuple[str, int], int]
Plan = Callable[[Reset, str], ResetPlan | Refusal]


class Case(NamedTuple):
    """A reset in the form of the resource and of the tool. `file` has the offsets of `--from-file`."""

    to: Mapping[str, Any]
    tool: str
    topics: tuple[str, ...] = ()
    group: str = READER
    file: str = ""


def at_ms(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dated(time_ms: int, topics: tuple[str, ...] = (), group: str = READER) -> Case:
    return Case({"datetime": at_ms(time_ms)}, f"--to-datetime {at_ms(time_ms)}", topics, group)


def shifted(by: int, topics: tuple[str, ...] = (), group: str = READER) -> Case:
    return Case({"shiftBy": by}, f"--shift-by {by}", topics, group)


def placed(group: str = READER, **offsets: int) -> Case:
    """Return a reset to offsets by partition of FLIGHTS, such as p0=3."""
    named = {int(name[1:]): offset for name, offset in offsets.items()}
    listed = [{"topic": FLIGHTS, "partition": number, "offset": offset} for number, offset in named.items()]
    file = "".join(f"{FLIGHTS},{number},{offset}\n" for number, offset in named.items())
    return Case({"offsets": listed}, "--from-file FILE", group=group, file=file)


def of_other(other: str, topics: tuple[str, ...] = ()) -> Case:
    kept = {where: offset for where, offset in COMMITTED[other].items() if not topics or where[0] in topics}
    file = "".join(f"{topic},{number},{offset}\n" for (topic, number), offset in kept.items())
    return Case({"group": other}, "--from-file FILE", topics, file=file)


CASES = {
    "earliest": Case({"earliest": {}}, "--to-earliest"),
    "earliest of a topic without records": Case({"earliest": {}}, "--to-earliest", (BARE,)),
    "earliest of a group that is not there": Case({"earliest": {}}, "--to-earliest", (PLANES,), "resets-nobody"),
    "latest": Case({"latest": {}}, "--to-latest"),
    "datetime between two records": dated(FIRST_MS + 4_500),
    "datetime of a record": dated(FIRST_MS + 9_000),
    "datetime behind all records": dated(FIRST_MS + RECORDS * 1000),
    "datetime in deleted records": dated(FIRST_MS + 2_000, (FLIGHTS,)),
    "duration of Kafka's kind": Case({"byDuration": "P9000DT1H30M"}, "--by-duration P9000DT1H30M", (FLIGHTS,)),
    "forward": shifted(2),
    "forward beyond the end": shifted(1_000),
    "back before the beginning": shifted(-1_000),
    "back where it is ahead": shifted(-1, (), AHEAD),
    "offsets at both ends": placed(p0=5, p1=0, p2=20),
    "offsets of another group": of_other(OTHER),
    "offsets of another group that is ahead": of_other(AHEAD),
}


@pytest.fixture(scope="module")
def filled(broker: ServerProcess) -> str:
    """The address of a broker that has groups, and topics with a record each second, five of them deleted."""
    client = LibrdkafkaClient(broker.bootstrap)
    for topic, partitions in TOPICS.items():
        client.create_topic(topic, partitions, KEPT_FOR_EVER)
        if topic != BARE:
            messages = (
                Message(b"%d" % number, partition=partition, timestamp_ms=FIRST_MS + number * 1000)
                for number in range(RECORDS)
                for partition in range(partitions)
            )
            client.produce(topic, list(messages))
    client.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(FLIGHTS, 0, 5)])[TopicPartition(FLIGHTS, 0)].result(PATIENCE_S)
    for group, offsets in COMMITTED.items():
        commit(broker.bootstrap, group, offsets)
    return broker.bootstrap


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    StockClient(bootstrap).commit(group, *(TopicPartition(*where, offset) for where, offset in offsets.items()))


@pytest.fixture(scope="module")
def plan(filled: str) -> Iterator[Plan]:
    client = connected_client(filled, PATIENCE_S, "test")
    yield lambda reset, group: plan_now(GroupAdmin(client, nullcontext), reset, group, datetime.now(UTC))
    client.close()


def by_the_tool(tools: KafkaTools, case: Case, folder: Path) -> Planned:
    (folder / "offsets.csv").write_text(case.file)
    tool = case.tool.replace("FILE", str(folder / "offsets.csv"))
    about = " ".join(f"--topic {topic}" for topic in case.topics) or "--all-topics"
    about = "" if case.file else about
    shown = tools.run(
        f"kafka-consumer-groups.sh {SERVER} --group {case.group} --reset-offsets {about} {tool} --dry-run"
    )
    return {(topic, int(number)): int(offset) for _, topic, number, offset in PLANNED.findall(shown.output)}


def declared(case: Case) -> Reset:
    return msgspec.convert({"id": "a", "to": case.to, "topics": case.topics}, Reset)


@pytest.mark.parametrize("name", CASES)
def test_a_reset_plans_the_same_offsets_as_kafkas_tool(
    name: str, tools: KafkaTools, plan: Plan, tmp_path: Path
) -> None:
    expected = by_the_tool(tools, CASES[name], tmp_path)
    assert expected
    found = plan(declared(CASES[name]), CASES[name].group)
    assert isinstance(found, ResetPlan), found
    assert {tuple(each.partition): each.to for each in found.moves} == expected


def test_offsets_outside_the_log_are_refused_although_kafkas_tool_adjusts_them(
    tools: KafkaTools, plan: Plan, tmp_path: Path
) -> None:
    case = placed(p0=3, p1=21)
    assert by_the_tool(tools, case, tmp_path) == {(FLIGHTS, 0): 5, (FLIGHTS, 1): 20}
    assert plan(declared(case), READER) == Refusal(
        "OffsetOutOfRange",
        (
            f"spec.offsets.reset.to.offsets: the log of {FLIGHTS}-0 has no offset 3; allowed: 5 to 20; "
            "number of other partitions with this problem: 1"
        ),
    )


def test_the_message_counts_skipped_and_repeated_records_and_names_adjusted_partitions(plan: Plan) -> None:
    assert str(plan(declared(CASES["forward beyond the end"]), READER)) == (
        f"the offsets of 3 partitions are set; the group skips 30 records and reads 0 again; the requested offset "
        f"is outside the log of some partitions, which get the log start or log end offset: {FLIGHTS}-0 at 20, "
        f"{FLIGHTS}-1 at 20, {PLANES}-1 at 20"
    )
    assert str(plan(declared(CASES["datetime of a record"]), READER)) == (
        "the offsets of 3 partitions are set; the group skips 8 records and reads 11 again"
    )


REFUSED: dict[str, tuple[Case, str, str]] = {
    "a topic that is not there": (
        Case({"latest": {}}, "", ("resets-nothing",)),
        "TopicNotFound",
        (
            "spec.offsets.reset.topics: the cluster has no topic resets-nothing; allowed: the names"
            " of existing topics in Kafka"
        ),
    ),
    "a partition that is not there": (
        placed(p3=1),
        "PartitionNotFound",
        f"spec.offsets.reset.to.offsets: {FLIGHTS}-3: {FLIGHTS} has 3 partitions; allowed: partitions 0 to 2",
    ),
    "a partition of another topic": (
        placed(p0=6)._replace(topics=(PLANES,)),
        "InvalidReset",
        (
            f"spec.offsets.reset.to.offsets: {FLIGHTS}-0 is not in spec.offsets.reset.topics; "
            "allowed: only topics in that list"
        ),
    ),
    "a group that is not there": (
        Case({"latest": {}}, "", group="resets-nobody"),
        "GroupNotFound",
        (
            "group resets-nobody does not exist: no consumer has joined or committed; spec.offsets.reset.topics must "
            "name the topics to read"
        ),
    ),
    "another group without offsets": (
        Case({"group": "resets-nobody"}, ""),
        "NoOffsets",
        (
            "spec.offsets.reset.to.group is resets-nobody, which has committed no offsets; allowed: a group with "
            "committed offsets"
        ),
    ),
    "another group that reads something else": (
        Case({"group": OTHER}, "", (BARE,)),
        "NoOffsets",
        (
            f"spec.offsets.reset.to.group is {OTHER}, which has committed no offsets in {BARE}; allowed: topics with "
            "committed offsets of that group"
        ),
    ),
    "nothing to shift": (
        shifted(-1, (FLIGHTS,)),
        "NoOffsets",
        (
            f"spec.offsets.reset.to.shiftBy: group {READER} has committed no offset in {FLIGHTS}-2; "
            "set earliest, latest or datetime in spec.offsets.reset.to, or name only topics with committed offsets"
        ),
    ),
    "a day that no calendar has": (
        Case({"datetime": "2026-02-30T00:00:00Z"}, ""),
        "InvalidReset",
        (
            "spec.offsets.reset.to.datetime is 2026-02-30T00:00:00Z: day is out of range for month; allowed: a time "
            "such as 2026-11-01T00:00:00Z"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_impossible_reset_is_refused_with_its_field_and_the_allowed_values(name: str, plan: Plan) -> None:
    case, reason, message = REFUSED[name]
    assert plan(declared(case), case.group) == Refusal(reason, message)


def test_a_datetime_in_the_future_is_refused(plan: Plan) -> None:
    found = plan(declared(Case({"datetime": "2999-01-01T00:00:00Z"}, "")), READER)
    assert isinstance(found, Refusal)
    assert found.reason == "DatetimeInFuture"
    assert "is 2999-01-01T00:00:00Z, which is in the future; the current time is 20" in found.message
