"""The connection of commands to a cluster: options, an identity for TLS, and the system's clocks."""

import argparse
import asyncio
import logging
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_kafka.security import Credentials, load_pem, trusting
from barnabas_kube.access import NoAccess
from barnabas_kube.client import ApiClient
from barnabas_kube.discovery import find_access
from barnabas_operator.app.child_process import DEFAULT, MemoryBroken, read_status
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.brokers.broker_security import addresses_between_brokers
from barnabas_operator.reconcile.worker_environment import Identity, broker_access
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.kind import (
    READY,
    RECONCILIATION_PAUSED,
    WITHIN_OBJECTIVE,
    Conditions,
    Key,
    condition_of,
)
from barnabas_operator.resources.schema_check import readable_part
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.user import User
from barnabas_operator.resources.yaml_documents import ManifestError

WIDTH_WITHOUT_TERMINAL = 160
BYTES_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def console() -> Console:
    """Return the standard output as a console, wide enough for tables in a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False, soft_wrap=True)


class Log:
    """Lines for people, each with the time of day."""

    def __init__(self, out: Console) -> None:
        self.out = out

    def say(self, text: str) -> None:
        """Print a text; indent all its lines except the first."""
        first, *others = text.splitlines() or [""]
        self.out.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(first)}")
        for line in others:
            self.out.print(f"         {escape(line)}")

    def complain(self, headline: str, errors: Iterable[ManifestError]) -> None:
        """Print a headline, and then each error as `file:line:column: what`.

        The errors are not indented, so that editors recognize the location of an error.
        """
        self.say(headline)
        for error in errors:
            self.out.print(f"[red]{escape(str(error))}[/red]")


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table; columns whose headings end in `>` are right-aligned."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        right = heading.endswith(">")
        made.add_column(heading.rstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def topics_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `topic_rows` as a table, as `kubectl get topics` prints them."""
    return table("", ("TOPIC", "READY", "PARTITIONS>", "REPLICAS>", "MESSAGE"), rows)


def topic_rows(topics: Iterable[Topic]) -> list[tuple[str, ...]]:
    """Return a row for each reconciled topic."""
    return [_topic_row(topic) for topic in topics]


def _topic_row(topic: Topic) -> tuple[str, ...]:
    status = topic.status
    assert status is not None, "a topic must have a status to be shown"
    word, message = _ready(status.conditions)
    return topic.topic_name, word, number(status.partitions), number(status.replicas), message


def _ready(conditions: Conditions) -> tuple[str, str]:
    """Return the status of the condition Ready (`paused` for a paused resource), and its reason with the message."""
    ready = condition_of(conditions, READY)
    word = "paused" if condition_of(conditions, RECONCILIATION_PAUSED) else (ready.status if ready else "Unknown")
    return word, f"{ready.reason}: {ready.message}" if ready and ready.message else ""


NUMBERS: Final = re.compile(r"[0-9][0-9.,]*")
GROUP_NUMBERS: Final = slice(3, 6)
"""The columns of numbers in a group's row. `without_numbers` leaves them out, because they change all the time."""


def users_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `user_rows` as a table, as `kubectl get users` prints them."""
    return table("", ("USER", "READY", "AUTHENTICATION", "MESSAGE"), rows)


def user_rows(users: Iterable[User]) -> list[tuple[str, ...]]:
    """Return a row for each declared user."""
    return [
        (user.username, _ready(user.conditions)[0], user.spec.authentication.type, _ready(user.conditions)[1])
        for user in users
    ]


def declared_groups_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `group_rows` as a table, as `kubectl get consumergroups` prints them."""
    headings = ("GROUP", "READY", "STATE", "MEMBERS>", "LAG>", "SECONDS>", "EVALUATION", "OBJECTIVE", "MESSAGE")
    return table("", headings, rows)


def group_rows(groups: Iterable[ConsumerGroup]) -> list[tuple[str, ...]]:
    """Return a row for each declared group."""
    return [_group_row(group) for group in groups]


def without_numbers(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return a group's row without its numbers, so that a comparison with an earlier row ignores changed numbers."""
    return (*row[: GROUP_NUMBERS.start], *row[GROUP_NUMBERS.stop : -1], NUMBERS.sub("", row[-1]))


def _group_row(group: ConsumerGroup) -> tuple[str, ...]:
    status = group.status
    assert status is not None, "a group must have a status to be shown"
    objective = condition_of(status.conditions, WITHIN_OBJECTIVE)
    numbers = map(number, (status.members, status.lag, status.seconds))
    words = (status.evaluation or "-", objective.status if objective is not None else "-")
    word, message = _ready(status.conditions)
    return group.group_id, word, status.state or "-", *numbers, *words, message


def number(value: int | None) -> str:
    """Return a number with commas between thousands, or a dash for None."""
    return "-" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return a size in the largest unit that makes the number at least 1, or a dash for None."""
    if value is None:
        return "-"
    scaled, unit = float(value), 0
    while scaled >= 1024 and unit < len(BYTES_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.1f} {BYTES_UNITS[unit]}" if unit else f"{value} B"


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
