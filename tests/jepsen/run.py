"""A run: brokers and clients with rounds of faults; at the end all lists are read and checked."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from kafka.protocol.metadata import ApiVersionsRequest

from harness.cluster import BarnabasCluster
from harness.deadline import wait_for
from harness.kafka_cluster import KafkaCluster, prepare_kafka_cluster
from harness.machines import Lan, MachinesUnavailable
from harness.server_process import HERE
from jepsen.anomalies import FORBIDDEN, Anomaly, anomalies
from jepsen.clients import Client, Fate, Notes
from jepsen.history import Entry, History, Outcome
from jepsen.libraries import LIBRARIES
from jepsen.lists import EVERYTHING, KEYS, TOPIC, Lists
from torture.faults import FAULTS, Arena, drawn, inflict

BROKERS: Final = 3
DISK_MIB: Final = 512
BARNABAS, KAFKA = "barnabas", "apache-kafka"
LOG_DIRS: Final = {BARNABAS: "logs-0", KAFKA: "logs"}
HEAL_SECONDS_MAX: Final = 180.0
READ_SECONDS_MAX: Final = 60.0
NOT_OF_KAFKA: Final = frozenset({"full disk"})
"""Faults that nodes of Kafka do not survive: they halt, and do not restart by themselves."""
SESSION_TIMEOUT_MS: Final = 3_000
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "default.replication.factor": str(BROKERS),
    "leader.imbalance.check.interval.seconds": "10",
    "log.segment.bytes": str(1024 * 1024),
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": str(BROKERS),
    "replica.lag.time.max.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": str(BROKERS),
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run; `seconds` is how long clients work between two rounds of faults."""

    rounds: int
    seed: int
    peer: str = BARNABAS
    first: int = 0
    seconds: float = 2.0
    libraries: tuple[str, ...] = tuple(LIBRARIES)
    only: tuple[str, ...] = ()


@dataclass
class Report:
    """The findings of a run."""

    rounds: Counter[str] = field(default_factory=Counter)
    """The number of faults of each kind."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    fates: Counter[Fate] = field(default_factory=Counter)
    values: int = 0
    reads: int = 0
    transaction_version: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def forbidden(self) -> list[Anomaly]:
        """Return the anomalies that no reader of committed records may see."""
        return [anomaly for anomaly in self.anomalies if anomaly.kind in FORBIDDEN]


def run(folder: Path, plan: Plan, say: Say) -> Report:
    """Run the plan; the report has the problems."""
    report, notes = Report(), Notes()
    with ExitStack() as running:
        lan = _machines(folder, plan, report, running)
        cluster = _cluster(folder, plan, lan)
        running.callback(cluster.close)
        cluster.start()
        cluster.create_topic(TOPIC, KEYS, BROKERS)
        report.transaction_version = _transaction_version(cluster)
        arena = Arena(cluster, lan, (TOPIC,), notes.problems)
        clients = _clients(folder, plan, cluster.bootstrap, notes)
        try:
            _rounds(arena, plan, clients, report, say)
            _finish(clients)
            say("reading everything back ...")
            history = History(notes.transactions, *_final_lists(cluster))
            report.anomalies = anomalies(history)
            report.values = sum(map(len, history.everything.values()))
        except AssertionError as error:
            notes.problems.append(f"did not heal: {error}")
        notes.problems += _tracebacks(cluster) if plan.peer == BARNABAS else []
    report.problems = notes.problems
    report.fates = notes.fates
    report.outcomes = Counter(transaction.outcome for transaction in notes.transactions.values())
    report.reads = sum(len(transaction.reads) for transaction in notes.transactions.values())
    return report


def _machines(folder: Path, plan: Plan, report: Report, running: ExitStack) -> Lan | None:
    try:
        lan = Lan(BROKERS, lambda number: folder / f"broker-{number}" / LOG_DIRS[plan.peer], DISK_MIB)
        return running.enter_context(lan)
    except MachinesUnavailable as reason:
        report.skipped = f"left out all faults of networks and disks: {reason}"
        return None


def _cluster(folder: Path, plan: Plan, lan: Lan | None) -> BarnabasCluster | KafkaCluster:
    """Return brokers that are not running, each on its machine, or all on this one."""
    places = [lan.machines[number].place if lan else HERE for number in range(BROKERS)]
    if plan.peer == KAFKA:
        return prepare_kafka_cluster(folder, BROKERS, PROPERTIES, "512m", places)
    cluster = BarnabasCluster(folder, PROPERTIES, log_dirs=1)
    for number, place in enumerate(places):
        cluster.add_broker(number, place=place)
    return cluster


def _transaction_version(cluster: BarnabasCluster | KafkaCluster) -> int:
    """Return the finalized level of the feature transaction.version."""
    request = ApiVersionsRequest(client_software_name="jepsen", client_software_version="1")
    levels = {each.name: each.max_version_level for each in cluster.ask(0, request, 3).finalized_features}
    return int(levels.get("transaction.version", 0))


def _clients(folder: Path, plan: Plan, bootstrap: str, notes: Notes) -> list[Client]:
    clients = []
    for place, library in enumerate(plan.libraries):
        name = f"{library}-{place}"
        start_library = partial(LIBRARIES[library], bootstrap, folder / f"{name}.log")
        clients.append(Client(name, start_library, bootstrap, notes, random.Random(f"{plan.seed}/{name}")))
    for client in clients:
        client.start()
    return clients


def _rounds(arena: Arena, plan: Plan, clients: Sequence[Client], report: Report, say: Say) -> None:
    left_out = NOT_OF_KAFKA if plan.peer == KAFKA else frozenset[str]()
    usable = [name for name, fault in FAULTS.items() if fault.is_usable(arena) and name not in left_out]
    names = [name for name in usable if not plan.only or name in plan.only]
    _await_commits(clients)
    for number in range(plan.first, plan.first + plan.rounds):
        chance = random.Random(f"{plan.seed}/{number}")
        faults = drawn(names, chance)
        done = inflict(arena, faults, chance)
        heal_s = _heal(arena, clients)
        report.rounds.update(faults)
        commits = sum(client.committed for client in clients)
        say(f"round {number}: {' + '.join(done)}; healed in {heal_s:.1f} s; {commits} commits")
        if arena.problems:
            return
        time.sleep(plan.seconds)


def _heal(arena: Arena, clients: Sequence[Client]) -> float:
    """Wait until all replicas are in sync and each client has committed; return how long it took."""
    began_s = time.monotonic()
    for broker in arena.cluster.brokers.values():
        broker.await_port()
    arena.cluster.wait_until_joined(HEAL_SECONDS_MAX)
    arena.cluster.wait_until_full(seconds_max=HEAL_SECONDS_MAX)
    _await_commits(clients)
    return time.monotonic() - began_s


def _await_commits(clients: Sequence[Client]) -> None:
    """Wait until each client has committed once more, or has failed."""
    before = {client: client.committed for client in clients}
    wait_for(
        lambda: [c.name for c in clients if c.is_alive() and c.committed <= before[c]],
        lambda waiting: not waiting,
        HEAL_SECONDS_MAX,
    )


def _finish(clients: Sequence[Client]) -> None:
    for client in clients:
        client.finish()


def _final_lists(cluster: BarnabasCluster | KafkaCluster) -> tuple[dict[int, list[Entry]], dict[int, list[Entry]]]:
    """Read the committed entries and all entries, when no transaction is open any more."""
    everything, committed = Lists(cluster.bootstrap, EVERYTHING), Lists(cluster.bootstrap)
    found: list[dict[int, list[Entry]]] = [{key: [] for key in range(KEYS)} for _ in range(2)]

    def are_at_one_end() -> bool:
        for lists, entries in zip((committed, everything), found, strict=True):
            for read in lists.read(READ_SECONDS_MAX):
                entries[read.key] += read.entries
        return committed.positions == everything.positions

    wait_for(are_at_one_end, seconds_max=HEAL_SECONDS_MAX)
    for lists in (committed, everything):
        lists.close()
    return found[0], found[1]


def _tracebacks(cluster: BarnabasCluster | KafkaCluster) -> list[str]:
    texts = {number: broker.log_text() for number, broker in cluster.brokers.items()}
    return [
        f"traceback: in the log of broker {number}: {text[text.index('Traceback') :][:3000]}"
        for number, text in texts.items()
        if "Traceback" in text
    ]
