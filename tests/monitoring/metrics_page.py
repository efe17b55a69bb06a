"""Writes the page of all metrics as Markdown, from the processes that export them.

`python -m monitoring.metrics_page FILE` writes it.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from barnabas_lag.exposition import CATALOGUE
from barnabas_operator.observed.operator_metrics import STRIMZI
from monitoring.metrics_told import Told, broker_metrics, exporter_metrics, operator_metrics
from monitoring.origins import ORIGINS

HEAD: Final = """# Metrics

Every metric of brokers, lag exporter and operator, in the order of their pages; `make metrics` writes this list.
[Monitoring](monitoring.md) has the dashboards and alerts that use them.
[The guide to consumer lag](../how-to/lag.md) explains those of the lag exporter.

The last column says what a metric stands for: Kafka's MBean, with the attribute behind a colon where it has several, a
setting, or a metric of another exporter. Brokers use kafka_exporter's names, and for most MBeans those that Strimzi's
rules for the JMX exporter give them. Where Kafka has a rate, there is a counter here: take `rate(...[5m])`. A
histogram has `_bucket`, `_sum` and `_count`. For each of their counters and histograms, lag exporter and operator have
`..._created`, too: when it began, in Unix time.
"""
BROKERS: Final = """
# Brokers

`/metrics` on port 9404 of a pod, or at `http.listener`. Each broker tells `kafka_log_log_*` of its own replicas. Only
the leader tells `kafka_topic_partition_*` and `kafka_cluster_partition_*` of a partition, and only the coordinator
tells `kafka_consumergroup_*` of a group, so that sums over all brokers count each once. So it is with transactions: a
partition's leader tells what they hold back there, an id's coordinator whether one is overdue. A PodMonitor adds
`namespace`, `cluster` and `broker`.

"""
EXPORTER: Final = """
# Lag exporter

`/metrics` on port 9308, or at `--listen-address`. A PodMonitor adds `namespace` and `cluster`.

"""
OPERATOR: Final = """
# Operator

`/metrics` on port 8080 of its pod. `resource_namespace` is the namespace of the resource that a series is about.

"""
COLUMNS: Final = "| metric | type | labels | what it says | stands for |\n|---|---|---|---|---|\n"
PROMETHEUS: Final = "Prometheus' client libraries"
OURS: Final = "ours"
KNOWN: Final = {
    **{each.name: each.origin for each in CATALOGUE},
    **{name: f"Strimzi: {name.replace('barnabas_', 'strimzi_', 1)}" for name in STRIMZI},
}


def page_text() -> str:
    """Return the whole page. It starts two brokers for a moment."""
    with TemporaryDirectory() as folder:
        brokers = broker_metrics(Path(folder))
    return "".join(
        (
            HEAD,
            *(BROKERS, COLUMNS, *_rows(brokers, ORIGINS)),
            *(EXPORTER, COLUMNS, *_rows(exporter_metrics(), KNOWN)),
            *(OPERATOR, COLUMNS, *_rows(operator_metrics(), KNOWN)),
        )
    )


def _rows(metrics: Iterable[Told], origins: Mapping[str, str]) -> Iterator[str]:
    for each in metrics:
        assert each.labels is not None, f"{each.name} has no series to read its labels of"
        labels = ", ".join(f"`{label}`" for label in each.labels)
        cells = (f"`{each.name}`", each.kind, labels, each.text.removesuffix("."), _marked(_origin(each.name, origins)))
        yield f"| {' | '.join(cells)} |\n"


def _origin(name: str, origins: Mapping[str, str]) -> str:
    """Return the origin of a metric; one that begins with `kafka_` must have one."""
    if name.startswith("process_"):
        return PROMETHEUS
    if name.startswith("barnabas_"):
        return origins.get(name, OURS)
    assert name in origins, f"{name}: say in the table of origins which MBean or exporter it is from"
    return origins[name]


def _marked(origin: str) -> str:
    """Return an origin as Markdown: names are code, words are not."""
    return ": ".join(f"`{part}`" if re.search(r"[-_.]", part) else part for part in origin.split(": "))


def main() -> None:
    """Write the file."""
    Path(sys.argv[1]).write_text(page_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
