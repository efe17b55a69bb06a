"""A broker process with its files, and what it reports about itself."""

import functools
from collections.abc import Mapping
from pathlib import Path

from harness.barnabas_server import metric, page, prepare_barnabas
from harness.server_process import ServerProcess, free_port
from harness.stock_client import StockClient

KAFKA_STORAGE_ERROR = 56
# The broker has its defaults, except for those for which a test would have to wait.
QUICK = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}


class FaultyBroker:
    """Settings are given with `_` for `.`; log dirs are named relative to the broker's folder."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.is_made_to_fail = False
        """True if its log may have a traceback."""
        self.http_port = free_port()
        given = {name.replace("_", "."): value for name, value in settings.items()}
        names = given.pop("log.dirs", "logs").split(",")
        self.log_dirs = [folder / name for name in names]
        properties = {
            **QUICK,
            "http.listener": f"127.0.0.1:{self.http_port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            **given,
        }
        self.server: ServerProcess = prepare_barnabas(folder, properties)

    @functools.cached_property
    def client(self) -> StockClient:
        """Return one client for the whole test, over all restarts."""
        return StockClient(self.server.bootstrap)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Return the folder of the partition."""
        (found,) = [path for each in self.log_dirs for path in each.glob(f"{topic}-{partition}")]
        return found

    def ready(self) -> str:
        """Return `ok`, or why the broker is not ready."""
        return page(self.http_port, "/readyz")[1].strip()

    def offline_log_dirs(self) -> float | None:
        """Return the metric that alerts use."""
        return metric(self.http_port, "kafka_log_logmanager_offlinelogdirectorycount")

    def lines(self, *words: str) -> list[str]:
        """Return the lines of the broker's log that have all of these words."""
        return [line for line in self.server.log_text().splitlines() if all(word in line for word in words)]
