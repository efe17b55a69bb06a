"""How the brokers' `offsets.retention.minutes` becomes one number, and how often brokers are asked for it."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_kafka.asking import Asking
from barnabas_lag.kafka.offsets import ASKED_EVERY_S, SETTING, OffsetsRetention
from harness.manual_clock import ManualClock

CLUSTER_AUTHORIZATION_FAILED = 31


class Brokers:
    """Brokers that answer with minutes, with an error code (a negative number), or not at all."""

    def __init__(self, **minutes: int | None) -> None:
        self.minutes: dict[int, int | None] = {int(name.removeprefix("b")): each for name, each in minutes.items()}
        self.asked = 0

    def ask(self, requests: Mapping[int, Any]) -> Iterator[tuple[int, Any, Any]]:
        self.asked += 1
        for broker_id, (request,) in requests.items():
            (resource,) = request.resources
            assert (resource.resource_type, resource.resource_name) == (4, str(broker_id))
            minutes = self.minutes.get(broker_id)
            if minutes is not None:
                yield broker_id, request, SimpleNamespace(results=[self._result(minutes)])

    def _result(self, minutes: int) -> SimpleNamespace:
        configs = [SimpleNamespace(name=SETTING, value=str(minutes))] if minutes > 0 else []
        return SimpleNamespace(error_code=max(0, -minutes), configs=configs)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def seconds(retention: OffsetsRetention, brokers: Brokers) -> float | None:
    return retention.seconds(cast(Asking, brokers), [1, 2])


def test_the_shortest_retention_of_the_reachable_brokers_counts(clock: ManualClock) -> None:
    assert seconds(OffsetsRetention(clock.monotonic_s), Brokers(b1=10_080, b2=60)) == 3_600
    assert seconds(OffsetsRetention(clock.monotonic_s), Brokers(b1=10_080)) == 604_800


def test_the_retention_is_read_every_ten_minutes_and_kept_if_no_broker_answers(
    clock: ManualClock,
) -> None:
    brokers, retention = Brokers(b1=60, b2=60), OffsetsRetention(clock.monotonic_s)
    assert seconds(retention, brokers) == 3_600
    brokers.minutes = {1: 120, 2: 120}
    clock.pass_time(ASKED_EVERY_S - 1)
    assert (seconds(retention, brokers), brokers.asked) == (3_600, 1)
    clock.pass_time(1)
    assert (seconds(retention, brokers), brokers.asked) == (7_200, 2)
    brokers.minutes = {}
    clock.pass_time(ASKED_EVERY_S)
    assert (seconds(retention, brokers), brokers.asked) == (7_200, 3)


def test_the_retention_is_unknown_and_the_refusal_names_the_right_that_is_missing(clock: ManualClock) -> None:
    brokers = Brokers(b1=-CLUSTER_AUTHORIZATION_FAILED, b2=-CLUSTER_AUTHORIZATION_FAILED)
    retention = OffsetsRetention(clock.monotonic_s)
    assert seconds(retention, brokers) is None
    assert "broker 1" in retention.refusal
    assert "ClusterAuthorizationFailedError" in retention.refusal
    assert "give the exporter's user the right DescribeConfigs on the cluster" in retention.refusal
    brokers.minutes = {1: 60}
    clock.pass_time(ASKED_EVERY_S)
    assert (seconds(retention, brokers), retention.refusal) == (3_600, "")


def test_the_refusal_names_a_broker_that_does_not_know_the_setting(clock: ManualClock) -> None:
    retention = OffsetsRetention(clock.monotonic_s)
    assert seconds(retention, Brokers(b1=0)) is None
    assert retention.refusal == "broker 1 does not know the setting offsets.retention.minutes"
