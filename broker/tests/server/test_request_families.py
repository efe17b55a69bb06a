"""The metrics of the times that requests take, and of how busy the loop is."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from scrape import scrape

from barnabas_broker.app.loop_turns import MeasuringSelector
from barnabas_broker.server.dispatch import TIME_BOUNDS_MS, RequestStats
from barnabas_broker.server.metrics.broker_families import Traffic, request_families


def shown(stats: RequestStats, idle_share: float = 0.25) -> dict[tuple[str, str], float]:
    """Return the values by name and, for buckets, bound, as Prometheus' own parser reads them."""
    traffic = Traffic([stats], lambda: 7, lambda: idle_share)
    page = scrape(request_families(traffic))
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("took_ms", "bound_ms"),
    [(0.0, 0.25), (0.2, 0.25), (0.3, 0.5), (0.9, 1.0), (1.1, 2.0), (900.0, 1024.0), (16_000.0, 16_384.0)],
)
def test_a_response_counts_in_every_bucket_whose_bound_is_above_its_time(took_ms: float, bound_ms: float) -> None:
    stats = RequestStats("Produce")
    stats.answered(took_ms / 1000)
    values = shown(stats)
    name = "kafka_network_requestmetrics_totaltimems"
    counted = {bound for bound in TIME_BOUNDS_MS if values[f"{name}_bucket", str(bound)]}
    assert counted == {bound for bound in TIME_BOUNDS_MS if bound >= bound_ms}
    assert values[f"{name}_bucket", "+Inf"] == values[f"{name}_count", ""] == 1
    assert values[f"{name}_sum", ""] == pytest.approx(took_ms)


def test_a_request_that_takes_minutes_counts_only_in_the_infinite_bucket() -> None:
    stats = RequestStats("Fetch")
    stats.answered(300.0)
    values = shown(stats)
    assert values["kafka_network_requestmetrics_totaltimems_bucket", str(TIME_BOUNDS_MS[-1])] == 0
    assert values["kafka_network_requestmetrics_totaltimems_bucket", "+Inf"] == 1


def test_a_deferred_request_counts_at_once_and_its_response_when_it_is_ready() -> None:
    stats, prefix = RequestStats("Fetch"), "kafka_network_requestmetrics"
    stats.answered(0.25)
    stats.deferred(0.125)
    waiting = shown(stats)
    stats.answered_late(0.5)
    answered = shown(stats)
    for values, answers, took_ms in ((waiting, 1, 250), (answered, 2, 750)):
        assert values[f"{prefix}_requests_total", ""] == 2
        assert values[f"{prefix}_localtime_seconds_total", ""] == 0.375
        assert values[f"{prefix}_totaltimems_count", ""] == answers
        assert values[f"{prefix}_totaltimems_sum", ""] == took_ms


def test_the_idle_metrics_of_kafkas_two_thread_pools_show_the_idle_share_of_the_loop() -> None:
    values = shown(RequestStats("Fetch"), idle_share=0.75)
    assert values["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", ""] == 0.75
    assert values["kafka_network_socketserver_networkprocessoravgidle_percent", ""] == 0.75


@contextmanager
def times(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time of the module's clock, in a list; a select takes as long as it is asked to wait."""
    now_s = [100.0]
    monkeypatch.setattr("barnabas_broker.app.loop_turns.perf_counter", lambda: now_s[0])

    def wait(self: object, timeout: float | None = None) -> list[object]:
        now_s[0] += timeout or 0.0
        return []

    monkeypatch.setattr(selectors.DefaultSelector, "select", wait)
    yield now_s


def test_the_idle_share_is_the_share_of_the_last_minute_that_was_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    with times(monkeypatch) as now_s, MeasuringSelector() as selector:
        for waited_s in [0.25] * 120 + [0.75] * 70:  # The wait in each turn of one second.
            selector.select(waited_s)
            now_s[0] += 1.0 - waited_s
        assert selector.idle_share() == pytest.approx(0.75, abs=0.05)


def test_the_selector_still_selects() -> None:
    here, there = socket.socketpair()
    with here, there, MeasuringSelector() as selector:
        selector.register(here, selectors.EVENT_READ)
        there.send(b"x")
        assert [key.fileobj for key, _ in selector.select(10)] == [here]
        assert 0.0 <= selector.idle_share() <= 1.0
