"""The metrics of the exporter's own work."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

PREFIX = "barnabas_lag_exporter"


class OwnMetrics:
    """The exporter's own metrics, counted since the process began."""

    def __init__(self, age_s: Callable[[], float], interval_s: float) -> None:
        """Create the metrics; `age_s` returns the seconds since the last round in which brokers answered."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._up = self._gauge("up", "1 if the cluster answered the last round of requests, else 0.")
        self._gauge(
            "round_age_seconds",
            "Seconds since the exported values were read from the cluster; +Inf before they are first read.",
        ).set_function(age_s)
        self._gauge(
            "interval_seconds", "Seconds between the starts of two consecutive rounds of requests to the brokers."
        ).set(interval_s)
        self._seconds = self._gauge(
            "round_seconds", "Duration of the last round of requests to the brokers in seconds."
        )
        self._rounds = self._counter("rounds", "Number of rounds of requests to the brokers, successful or failed.")
        self._failed = self._counter("failed_rounds", "Number of rounds of requests that the cluster did not answer.")
        self._failures = self._counter(
            "request_failures", "Number of requests that a broker refused or did not answer.", "request"
        )
        self._cut_off = self._gauge(
            "cut_off",
            "Number of topics or groups that are not exported in full, because an option limits the series.",
            "option",
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def round_ended(self, seconds: float, *, is_answered: bool) -> None:
        """Count one evaluation of the lag, and set its duration and the metric `up`.

        If no broker answered, count the evaluation as failed, too.
        """
        self._rounds.inc()
        self._seconds.set(seconds)
        self._up.set(is_answered)
        if not is_answered:
            self._failed.inc()

    def request_failed(self, request: str) -> None:
        """Count a failed request to a broker."""
        self._failures.labels(request).inc()

    def tell_cut_off(self, names: Mapping[str, int]) -> None:
        """Set the metric `cut_off`: for each option, the number of topics or groups that are not exported in full."""
        for option, count in names.items():
            self._cut_off.labels(option).set(count)
