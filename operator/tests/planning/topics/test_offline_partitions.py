"""A Topic with partitions without a leader is not ready, and reports why."""

from typing import Any

import pytest
from msgspec.structs import replace
from test_topic_plan import having, topic

from barnabas_operator.planning.cluster_state import Trouble
from barnabas_operator.planning.rules_of_kinds import status_events
from barnabas_operator.planning.topics.topic_plan import topic_status

LOST = "the last known log end is 9308, broker 0 has no log"


def trouble(partition: int = 0, *, offline: bool = True, lost: str | None = None) -> Trouble:
    return Trouble("flights", partition, (0,), (), offline, lost)


TOLD: list[Any] = [
    pytest.param([trouble(offline=False)], "True", "Reconciled", "", id="a replica is missing"),
    pytest.param(
        [trouble()],
        "False",
        "PartitionsOffline",
        "partitions are offline: flights-0 (without a leader)",
        id="its brokers are away",
    ),
    pytest.param(
        [trouble(1), trouble(lost=LOST)],
        "False",
        "RecordsLost",
        f"partitions are offline because every replica lacks committed records: flights-0 ({LOST}); "
        "`barnabas accept-loss --topic flights` elects the replicas with the longest logs",
        id="records are lost",
    ),
]


@pytest.mark.parametrize(("troubles", "status", "reason", "message"), TOLD)
def test_a_topic_is_ready_only_while_all_its_partitions_have_a_leader(
    troubles: list[Trouble], status: str, reason: str, message: str
) -> None:
    told = topic_status(topic(), having().topics["flights"], None, "T", troubles)
    ready = told.conditions[0]
    assert (ready.type, ready.status, ready.reason, ready.message) == ("Ready", status, reason, message)


def test_lost_records_cause_a_warning() -> None:
    status = topic_status(topic(), having().topics["flights"], None, "T", [trouble(lost=LOST)])
    (event,) = status_events(replace(topic(), status=status), {}, "T")
    assert (event["type"], event["reason"]) == ("Warning", "RecordsLost")
    assert LOST in event["message"]


def test_a_condition_names_only_some_of_many_offline_partitions() -> None:
    status = topic_status(topic(), having().topics["flights"], None, "T", [trouble(number) for number in range(30)])
    assert status.conditions[0].message.endswith("flights-4 (without a leader) and 25 more")
    assert status.offline_partitions == 30
