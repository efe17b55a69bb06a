"""The lag exporter of a Cluster on this machine, as a process."""

import sys
from typing import Final

from barnabas_kafka.security import Tls
from barnabas_operator.app.child_process import Child, ChildFailed, ChildProcess, Say, end_leftover
from barnabas_operator.app.data_dir import DataDir
from barnabas_operator.app.local_cluster import any_free_port, is_free
from barnabas_operator.planning.brokers.broker_security import HOST
from barnabas_operator.planning.brokers.local_properties import name_options, tls_options
from barnabas_operator.planning.object_names import LAG_EXPORTER_PORT
from barnabas_operator.resources.lag_exporter import LagExporter

COMMAND: Final = "lag-exporter"
FOLDER: Final = "lag-exporter"
NAME: Final = "the lag exporter"
ExporterOptions = tuple[LagExporter, str, Tls | None]
"""The declared exporter, the brokers' addresses, and the TLS settings for connections to the brokers."""


class LocalExporter:
    """The lag exporter of a Cluster that declares one, at the default port of kafka_exporter if the port is free."""

    def __init__(self, data_dir: DataDir, say: Say) -> None:
        self._folder = data_dir.path / FOLDER
        self._say = say
        self._process: ChildProcess | None = None
        self._started: ExporterOptions | None = None
        self._failure = ""

    async def bring(self, declared: LagExporter | None, bootstrap: str, tls: Tls | None) -> None:
        """Start, stop or restart the lag exporter as the Cluster declares.

        If the lag exporter cannot start, only print the error, because the brokers do not need the lag exporter.
        """
        wanted = (declared, bootstrap, tls) if declared is not None else None
        if wanted == self._started:
            return
        await self.stop()
        if wanted is not None:
            await self._start(wanted)

    async def stop(self) -> None:
        """Stop the exporter, if it runs."""
        process, self._process, self._started = self._process, None, None
        if process is not None:
            await process.stop()
            self._say("the lag exporter has ended")

    async def _start(self, wanted: ExporterOptions) -> None:
        await end_leftover(self._folder, COMMAND, NAME, self._say)
        port = LAG_EXPORTER_PORT if is_free(LAG_EXPORTER_PORT) else any_free_port(set())
        process = ChildProcess(self._child(wanted, port), self._say, lambda: None)
        self._process = process
        try:
            await process.start()
        except ChildFailed as error:
            if str(error) != self._failure:
                self._say(str(error))
            self._failure, self._process = str(error), None
            return
        self._started, self._failure = wanted, ""
        self._say(f"the lag exporter serves the lag of groups: http://{HOST}:{port}/metrics")

    def _child(self, wanted: ExporterOptions, port: int) -> Child:
        declared, bootstrap, tls = wanted
        brokers = (f"--bootstrap={bootstrap}", *tls_options(tls))
        options = (*brokers, f"--listen-address={HOST}:{port}", *name_options(declared))
        return Child(
            name=NAME,
            folder=self._folder,
            log_name="lag-exporter.log",
            http_port=port,
            ready_path="/healthz",
            command=(sys.executable, "-m", "barnabas", COMMAND, *options),
        )
