"""The connection of commands to a cluster: options, an identity for TLS, and the system's clocks."""

import argparse
import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_kafka.security import Credentials, load_pem, trusting
from barnabas_kube.access import NoAccess
from barnabas_kube.client import ApiClient
from barnabas_kube.discovery import find_access
from barnabas_operator.app.child_process import DEFAULT, MemoryBroken, read_status
from barnabas_operator.app.output import console
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.brokers.broker_security import addresses_between_brokers
from barnabas_operator.reconcile.worker_environment import Identity, broker_access
from barnabas_operator.resources.api_objects import readable_part
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.kind import Key


class TlsIdentity(NamedTuple):
    """The credentials of a client: a certificate, and the trusted authorities."""

    context: ssl.SSLContext

    @property
    def authenticates(self) -> bool:
        """True, because the client authenticates by its certificate."""
        return True

    def settings(self) -> Mapping[str, Any]:
        """Return kafka-python's settings for a connection with these credentials."""
        return {"security_protocol": "SSL", "ssl_context": self.context}


def tls_identity(identity: Identity) -> TlsIdentity:
    """Return the credentials of an identity. Raises ValueError if a PEM text is invalid."""
    context = trusting(identity.authorities)
    load_pem(context, identity.key + identity.certificate)
    return TlsIdentity(context)


class SystemClock:
    """The clock of the machine, for coroutines (`LoopClock`) and for threads (`kafka.cluster_admin.BlockingClock`)."""

    def now_ms(self) -> int:
        """Return the wall-clock time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return the seconds since the boot of the machine, including time in suspend."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Wait for the given seconds, while other coroutines run."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Return a context manager that raises TimeoutError if its body takes longer than the given seconds."""
        return asyncio.timeout(seconds)

    def block(self, seconds: float) -> None:
        """Block the thread for the given seconds."""
        time.sleep(seconds)


EXIT_FAILED: Final = 1
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONNECT_TIMEOUT_S: Final = 5.0
AGENT: Final = "barnabas-command"


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster to the parser."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--bootstrap",
        type=addresses,
        metavar="HOST:PORT",
        help="the bootstrap address; default: the cluster of `barnabas up`, or else localhost:9092",
    )
    which.add_argument(
        "--cluster",
        type=cluster_key,
        metavar="NAMESPACE/NAME",
        help="a Cluster on Kubernetes, to which the command connects as its operator does; in the operator's pod",
    )
    add_command_config(parser)
    parser.add_argument("--data-dir", type=Path, default=DEFAULT, help="default: %(default)s")


def cluster_key(text: str) -> Key:
    """Return the namespace and name of a Cluster. Raises argparse.ArgumentTypeError if one of them is missing."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text}; allowed: NAMESPACE/NAME of a Cluster, such as kafka/flights")
    return Key(namespace, name)


class Target(NamedTuple):
    """The cluster that a command is about; `source` says where its bootstrap addresses come from."""

    bootstrap: str
    source: str
    security: Credentials


def target_of(options: argparse.Namespace) -> Target:
    """Return the cluster that the options name. Raises ClusterUnreachable if its Cluster or Secret cannot be read."""
    if options.cluster is not None:
        return asyncio.run(_declared(options.cluster))
    given = options.bootstrap
    bootstrap, source = (given, "--bootstrap") if given else known_bootstrap(options.data_dir)
    return Target(bootstrap, source, options.command_config)


async def _declared(key: Key) -> Target:
    name = f"{key.namespace}/{key.name}"
    try:
        async with ApiClient(find_access(os.environ), AGENT) as client:
            found = await KubeApi(client).get(CLUSTER.name, key.namespace, key.name)
            if found is None:
                known = "`kubectl get clusters.barnabas.dev -A` lists them"
                raise ClusterUnreachable(f"there is no Cluster {key.name} in the namespace {key.namespace}; {known}")
            cluster = readable_part(Cluster, found)
            security = await broker_access(KubeApi(client), cluster, tls_identity)
    except (NoAccess, KubeUnreachable, KubeRefused) as error:
        raise ClusterUnreachable(f"the Cluster {name} cannot be read from the API server: {error}") from error
    return Target(addresses_between_brokers(cluster), f"the Cluster {name}", security)


def mute_kafka_python() -> None:
    """Turn off the log of kafka-python: it also raises the errors that it logs, so its log would only repeat them."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def on_cluster(options: argparse.Namespace, work: Callable[[Console, Any], int]) -> int:
    """Connect a client to the cluster, and return the exit code that `work` returns; 1 if no broker answers."""
    mute_kafka_python()
    out = console()
    try:
        target = target_of(options)
        with connected(target) as admin, reachable():
            return work(out, admin.client)
    except ClusterUnreachable as error:
        out.print(str(error), markup=False)
        return EXIT_FAILED


def connected(target: Target) -> ClusterAdmin:
    """Return a connection to the cluster. Raises ClusterUnreachable if no broker answers."""
    try:
        return ClusterAdmin(target.bootstrap, SystemClock(), CONNECT_TIMEOUT_S, security=target.security)
    except ClusterUnreachable as error:
        raise ClusterUnreachable(f"no broker answers at {target.bootstrap} ({target.source}): {error}") from error


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
