"""The options by which commands find a cluster, and the connection to that cluster."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_kafka.security import Credentials
from barnabas_operator.app.data_dir import DEFAULT, MemoryBroken, read_status
from barnabas_operator.app.output import console
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin

EXIT_FAILED: Final = 1
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONNECT_TIMEOUT_S: Final = 5.0


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster to the parser."""
    parser.add_argument(
        "--bootstrap",
        type=addresses,
        metavar="HOST:PORT",
        help="the bootstrap address; default: the cluster of `barnabas up`, or else localhost:9092",
    )
    add_command_config(parser)
    parser.add_argument("--data-dir", type=Path, default=DEFAULT, help="default: %(default)s")


def mute_kafka_python() -> None:
    """Turn off the log of kafka-python: it also raises the errors that it logs, so its log would only repeat them."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def on_cluster(options: argparse.Namespace, work: Callable[[Console, Any], int]) -> int:
    """Connect a client to the cluster, and return the exit code that `work` returns; 1 if no broker answers."""
    mute_kafka_python()
    out, bootstrap = console(), options.bootstrap or known_bootstrap(options.data_dir)[0]
    try:
        with connected(bootstrap, options.command_config) as admin, reachable():
            return work(out, admin.client)
    except ClusterUnreachable as error:
        out.print(f"no broker answers at {bootstrap}: {error}", markup=False)
        return EXIT_FAILED


def connected(bootstrap: str, security: Credentials) -> ClusterAdmin:
    """Return a connection to the cluster. Raises ClusterUnreachable if no broker answers."""
    return ClusterAdmin(bootstrap, SystemClock(), CONNECT_TIMEOUT_S, security=security)


def known_bootstrap(data_dir: Path) -> tuple[str, str]:
    """Return the address of the last `barnabas up` or the default address, and a text that says which address it is."""
    try:
        known = read_status(data_dir)
    except MemoryBroken:
        known = None
    status = known.cluster.status if known else None
    if status is None or not status.listeners or not status.listeners[0].bootstrap_servers:
        return DEFAULT_BOOTSTRAP, f"the default address, because {data_dir} has no cluster"
    return status.listeners[0].bootstrap_servers, f"the address of the cluster in {data_dir}"
