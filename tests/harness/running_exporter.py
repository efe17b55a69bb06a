"""`barnabas lag-exporter` as a child process, with its page read by Prometheus' own parser."""

import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from harness.barnabas_server import page
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess, free_port

INTERVAL_S = 1.0
Labels = dict[str, str]


class RunningExporter:
    """A lag exporter that rests one second between its rounds."""

    def __init__(self, bootstrap: str, folder: Path, *options: str) -> None:
        port = free_port()
        listening = ["--bootstrap", bootstrap, "--listen-address", f"127.0.0.1:{port}", "--interval", f"{INTERVAL_S:g}"]
        command = [sys.executable, "-m", "barnabas", "lag-exporter", *listening, *options]
        self.process = ServerProcess(command, port, folder / "lag-exporter.log")

    def start(self) -> "RunningExporter":
        self.process.start()
        return self

    def page(self, path: str) -> tuple[int, str]:
        return page(self.process.port, path)

    def samples(self) -> dict[str, list[tuple[Labels, float]]]:
        """Return all samples by the name of the metric."""
        found: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(self.page("/metrics")[1]):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of all series that have these labels, in the order of the page."""
        rows = self.samples().get(name, [])
        return [value for has, value in rows if labels.items() <= has.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only such series; None if there is none."""
        found = self.values(name, **labels)
        assert len(found) < 2, f"{name}{labels}: {found}"
        return found[0] if found else None

    def wait_for_value(self, name: str, expected: float | None, seconds_max: float = PATIENCE_S, **labels: str) -> None:
        wait_for(lambda: self.value(name, **labels), lambda value: value == expected, seconds_max, pause_s=0.1)

    def next_round(self) -> None:
        """Return when a round that begins from now on has ended."""
        rounds = self.value("barnabas_lag_exporter_rounds_total") or 0.0
        wait_for(lambda: (self.value("barnabas_lag_exporter_rounds_total") or 0.0) >= rounds + 2, pause_s=0.1)

    def log(self) -> str:
        return self.process.log_text()
