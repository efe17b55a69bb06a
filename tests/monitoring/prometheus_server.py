"""A real Prometheus that scrapes the given addresses, and answers PromQL."""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from harness.deadline import PATIENCE_S, wait_for
from harness.require import missing
from harness.server_process import ServerProcess, free_port
from local_kubernetes.binaries import CannotStart
from monitoring.prometheus_programs import prometheus_programs

SCRAPE: Final = "2s"
"""The longest time that it waits for a page: a busy broker needs some."""
Labels = Mapping[str, str]


class Job(NamedTuple):
    """A scrape job: addresses with labels of their own, and the relabelings that Prometheus' operator would apply."""

    name: str
    targets: Sequence[tuple[str, Labels]]
    relabelings: Sequence[Mapping[str, Any]] = ()
    access: Mapping[str, Any] = MappingProxyType({})
    """The fields of the scrape configuration about TLS and credentials."""


class Series(NamedTuple):
    """The result of a query: numbers in the order of time, without NaN."""

    labels: Labels
    values: list[float]


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ready(self) -> bool:
        try:
            return bool(self._get("status/runtimeinfo"))
        except OSError:
            return False

    def now(self, expr: str) -> list[Series]:
        """Return the result of an instant query."""
        found = self._get("query", query=expr)["result"]
        return [Series(each["metric"], _numbers([each["value"]])) for each in found]

    def over_time(self, expr: str, start_s: float, end_s: float) -> list[Series]:
        """Return the result of a range query, one value a second."""
        found = self._get("query_range", query=expr, start=start_s, end=end_s, step=1)["result"]
        return [Series(each["metric"], _numbers(each["values"])) for each in found]

    def label_values(self, label: str, series: str) -> list[str]:
        """Return the same values as `label_values(series, label)` of a dashboard's variable."""
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": series})
        return found

    def metrics(self) -> set[str]:
        """Return the names on the pages that are scraped, also those without a sample."""
        return {each["metric"] for each in self._get("targets/metadata")}

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that fire, with labels and annotations."""
        return [each for each in self._get("alerts")["alerts"] if each["state"] == "firing"]

    def _get(self, path: str, **given: object) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/{path}?{urllib.parse.urlencode(given)}", timeout=PATIENCE_S
        ) as answer:
            return json.load(answer)["data"]


def _numbers(values: Sequence[tuple[float, str]]) -> list[float]:
    """Return the numbers without NaN, which dashboards show as nothing."""
    return [float(value) for _, value in values if not math.isnan(float(value))]


@contextmanager
def prometheus(folder: Path, jobs: Sequence[Job], rules: Path | None = None) -> Iterator[Prometheus]:
    """Run Prometheus."""
    try:
        program = prometheus_programs() / "prometheus"
    except CannotStart as reason:
        missing(reason)
    config = {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [_scraped(job) for job in jobs],
    }
    file, port = folder / "prometheus.yaml", free_port()
    file.write_text(json.dumps(config), encoding="utf-8")
    options = (
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with closing(ServerProcess([str(program), *options], port, folder / "prometheus.log")) as process:
        process.launch()
        process.await_port()
        running = Prometheus(port)
        wait_for(running.ready)
        yield running


def _scraped(job: Job) -> dict[str, Any]:
    return {
        "job_name": job.name,
        **job.access,
        "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in job.targets],
        "relabel_configs": [{_snake_case(name): value for name, value in each.items()} for each in job.relabelings],
    }


def _snake_case(name: str) -> str:
    """Return Prometheus' own name of a field of its operator: `sourceLabels` is `source_labels`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
