"""The metrics of the exporter's own work."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

PREFIX = "barnabas_lag_exporter"


class OwnMetrics:
    """The exporter's own metrics, counted since the process began."""

    def __init__(self, age_s: Callable[[], float], interval_s: float) -> None:
        """Create the metrics; `age_s` returns the seconds since the last answered round."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._up = self._gauge("up", "1 if the cluster answered the last round.")
        self._gauge(
            "round_age_seconds", "Seconds since the shown values were read; +Inf before the first round."
        ).set_function(age_s)
        self._gauge("interval_seconds", "Seconds from one round to the next.").set(interval_s)
        self._seconds = self._gauge("round_seconds", "Seconds that the last round took.")
        self._rounds = self._counter("rounds", "Rounds, successful or failed.")
        self._failed = self._counter("failed_rounds", "Rounds in which the cluster did not answer.")
        self._failures = self._counter(
            "request_failures", "Requests that a broker refused or did not answer.", "request"
        )
        self._cut_off = self._gauge(
            "cut_off", "Topics or groups without series because an option limits their number.", "option"
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def round_ended(self, seconds: float, *, is_answered: bool) -> None:
        """Count a round of `seconds`; `is_answered` is True if brokers answered."""
        self._rounds.inc()
        self._seconds.set(seconds)
        self._up.set(is_answered)
        if not is_answered:
            self._failed.inc()

    def request_failed(self, request: str) -> None:
        """Count a failed request to a broker."""
        self._failures.labels(request).inc()

    def tell_cut_off(self, names: Mapping[str, int]) -> None:
        """Set the number of names that each option leaves out now."""
        for option, count in names.items():
            self._cut_off.labels(option).set(count)
