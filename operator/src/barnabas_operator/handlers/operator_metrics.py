"""What the operator tells Prometheus of its own work."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from barnabas_operator.handlers.inventory import Inventory

SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class OperatorMetrics:
    """Names as Strimzi's, with our prefix."""

    def __init__(self, inventory: Inventory) -> None:
        self.registry = CollectorRegistry()
        self._rounds = Counter("barnabas_reconciliations", "Rounds over a Cluster.", registry=self.registry)
        self._good = Counter("barnabas_reconciliations_successful", "Those that ended.", registry=self.registry)
        self._failed = Counter("barnabas_reconciliations_failed", "Those tried again.", registry=self.registry)
        self._seconds = Histogram(
            "barnabas_reconciliations_duration_seconds", "How long they took.", buckets=SECONDS, registry=self.registry
        )
        self.registry.register(_Resources(inventory))

    def round_ended(self, seconds: float, is_good: bool) -> None:
        """Counts one round."""
        self._rounds.inc()
        (self._good if is_good else self._failed).inc()
        self._seconds.observe(seconds)


class _Resources(Collector):
    """Counted at the scrape."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Resources by kind, and those of them that are paused."""
        kinds = {"Cluster": self._inventory.clusters.values(), "Topic": self._inventory.topics.values()}
        for name, text, only_paused in (
            ("barnabas_resources", "Resources that are watched.", False),
            ("barnabas_resources_paused", "Resources that are left as they are.", True),
        ):
            family = GaugeMetricFamily(name, text, labels=["kind"])
            for kind, bodies in kinds.items():
                paused = sum(bool(body.get("spec", {}).get("pause")) for body in bodies)
                family.add_metric([kind], paused if only_paused else len(bodies))
            yield family
