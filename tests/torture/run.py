"""A run: brokers, writers and readers under round after round of faults; at the end everything is read and compared."""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import TopicPartition

from e2e.state_documents import define_state_documents, environment_of_broker
from harness.certificates import Authority
from harness.cluster import BarnabasCluster
from harness.deadline import PATIENCE_S, wait_for
from harness.machines import CLIENTS, Lan, MachinesUnavailable
from harness.mutual_tls import add_listener_of_brokers, mutual_tls
from harness.replica_comparison import differences, parse_headers, partition_dirs
from harness.server_process import HERE
from harness.soak import size
from local_kubernetes.apiserver import prepare_api_server
from local_kubernetes.control_plane import ControlPlane, Place
from torture.faults import FAULTS, SESSION_TIMEOUT_S, Arena, drawn, inflict
from torture.history import History, Lane, broken_sequences, check
from torture.workload import Reader, Writer

BROKERS: Final = 3
DISK_MIB: Final = 512
GROUP: Final = "readers"
IDEMPOTENT, PIPELINED, PLAIN = "idempotent", "pipelined", "plain"
TOPICS: Final = {IDEMPOTENT: 6, PIPELINED: 3, PLAIN: 3}
OFFSETS_TOPIC: Final = "__consumer_offsets"
# Only the soak has the machine to itself.
HEAL_SECONDS_MAX: Final = size(180.0, 60.0)
CATCH_UP_SECONDS_MAX: Final = size(180.0, 60.0)
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "leader.imbalance.check.interval.seconds": "10",
    "log.segment.bytes": str(1024 * 1024),
}

SQLITE, KUBERNETES = "sqlite", "kubernetes"
STORES: Final = (SQLITE, KUBERNETES)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run; `rate` is records a second of each writer."""

    rounds: int
    seed: int
    rate: int = 200
    first: int = 0
    only: tuple[str, ...] = ()
    store: str = SQLITE
    tls: bool = False
    """True if brokers connect to each other by TLS, with certificates of both sides."""


class Round(NamedTuple):
    """A round that the brokers survived."""

    faults: tuple[str, ...]
    heal_s: float


@dataclass
class Report:
    """The results of a run."""

    rounds: list[Round] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    acknowledged: int = 0
    seen: int = 0
    commits: int = 0
    partitions_compared: int = 0
    longest_gap_s: float = 0.0


def torture(folder: Path, plan: Plan, say: Say) -> Report:
    """Do everything; the report's problems have what was wrong. Raises CannotStart if the store cannot be had."""
    report = Report()
    with ExitStack() as running:
        lan = _machines(folder, report, running)
        api_server = running.enter_context(_api_server(lan, folder)) if plan.store == KUBERNETES else None
        cluster = cluster_on(lan, folder, api_server, tls=plan.tls)
        running.callback(cluster.close)
        cluster.start()
        for topic, partitions in TOPICS.items():
            cluster.create_topic(topic, partitions, BROKERS)
        history = History(idempotent_topics=frozenset([IDEMPOTENT]))
        arena = Arena(cluster, lan, tuple(TOPICS), history.problems, api_server)
        writers, readers = _clients(cluster.bootstrap, history, plan.rate)
        try:
            _rounds(arena, plan, writers, report, say)
            _rest(arena, history, writers, readers, report)
        except AssertionError as error:
            history.problems.append(f"did not heal: {error}\n{_views(cluster)}")
        say("reading everything back ...")
        report.problems += check(history)
        report.problems += _tracebacks(cluster)
        if report.problems and lan is not None:
            _keep_logs(arena, folder)
        report.acknowledged, report.commits = len(history.acknowledged), len(history.commits)
        report.seen = sum(map(len, history.seen.values()))
        report.longest_gap_s = max(writer.longest_gap_s for writer in writers)
    return report


def _machines(folder: Path, report: Report, running: ExitStack) -> Lan | None:
    try:
        return running.enter_context(lan_of_brokers(folder))
    except MachinesUnavailable as reason:
        names = [name for name, fault in FAULTS.items() if fault.needs_machines]
        report.skipped.append(f"left out ({reason}): {', '.join(names)}")
        return None


def lan_of_brokers(folder: Path) -> Lan:
    """Make a machine for each broker, with its disk at the broker's log dir. Raises MachinesUnavailable."""
    return Lan(BROKERS, lambda number: folder / f"broker-{number}/logs-0", DISK_MIB)


@contextmanager
def _api_server(lan: Lan | None, folder: Path) -> Iterator[ControlPlane]:
    """Run an API server where the clients are: brokers that are cut off from them are cut off from it, too."""
    place = Place(address=lan.address(CLIENTS)) if lan else Place()
    plane = prepare_api_server(folder / "api-server", place)
    try:
        plane.start_api()
        define_state_documents(plane)
        yield plane
    finally:
        plane.daemons.stop_all()


def cluster_on(
    lan: Lan | None, folder: Path, api_server: ControlPlane | None = None, *, tls: bool = False
) -> BarnabasCluster:
    """Return brokers that are not started, each on its machine, or all on this one."""
    store = {} if api_server is None else {"metadata.store": "kubernetes://default/tortured"}
    places = [lan.machines[number].place if lan else HERE for number in range(BROKERS)]
    secured = _mutual_tls(folder / "certificates", [place.host for place in places]) if tls else {}
    cluster = BarnabasCluster(folder, {**PROPERTIES, **store, **secured}, log_dirs=1)
    for number, place in enumerate(places):
        cluster.add_broker(number, place=place)
        if tls:
            add_listener_of_brokers(cluster.brokers[number])
        if api_server is not None:
            cluster.brokers[number].environment |= environment_of_broker(api_server, number)
    return cluster


def _mutual_tls(folder: Path, hosts: Sequence[str]) -> dict[str, str]:
    authority = Authority(folder)
    return mutual_tls(authority.issue("broker", addresses=hosts), authority)


def _clients(bootstrap: str, history: History, rate: int) -> tuple[list[Writer], list[Reader]]:
    """Start writers and readers.

    With several requests under way librdkafka repeats records that it may have written already. It takes a new
    producer epoch when one of them fails and the next is out of order (its issue 4953), and no broker can know
    that. So of `pipelined` only sequences within a producer epoch are checked, and that nothing is lost.
    """
    settings: dict[str, dict[str, bool | int]] = {
        IDEMPOTENT: {"enable_idempotence": True, "max_in_flight_requests_per_connection": 1},
        PIPELINED: {"enable_idempotence": True},
        PLAIN: {"enable_idempotence": False},
    }
    writers = [
        Writer(topic, history, bootstrap, topic, rate=rate, partitions=TOPICS[topic], **chosen)
        for topic, chosen in settings.items()
    ]
    readers = [Reader(f"reader{n}", history, bootstrap, GROUP, TOPICS) for n in range(2)]
    for client in (*writers, *readers):
        client.start()
    return writers, readers


def _rounds(arena: Arena, plan: Plan, writers: list[Writer], report: Report, say: Say) -> None:
    usable = [name for name, fault in FAULTS.items() if fault.is_usable(arena)]
    names = [name for name in usable if not plan.only or name in plan.only]
    for number in range(plan.first, plan.first + plan.rounds):
        chance = random.Random(f"{plan.seed}/{number}")
        faults = drawn(names, chance)
        told = inflict(arena, faults, chance)
        heal_s = _heal(arena, writers)
        report.rounds.append(Round(faults, heal_s))
        clock = time.strftime("%H:%M:%S")
        answers = sum(writer.done for writer in writers)
        say(f"{clock} round {number}: {' + '.join(told)}; healed in {heal_s:.1f} s; {answers} answers")
        if arena.problems:
            return


def _heal(arena: Arena, writers: list[Writer]) -> float:
    """Wait until all replicas are in sync and writers have all answers; return how long it took."""
    began_s = time.monotonic()
    for broker in arena.cluster.brokers.values():
        broker.await_port()
    arena.cluster.wait_until_joined(HEAL_SECONDS_MAX)
    arena.cluster.wait_until_full(seconds_max=HEAL_SECONDS_MAX)
    sent = [writer.sent for writer in writers]
    wait_for(
        lambda: [f"{w.name}: {n - w.done} without an answer" for w, n in zip(writers, sent, strict=True) if w.done < n],
        lambda behind: not behind,
        HEAL_SECONDS_MAX,
    )
    return time.monotonic() - began_s


def _rest(arena: Arena, history: History, writers: list[Writer], readers: list[Reader], report: Report) -> None:
    """End writers and readers, read the logs back and compare the replicas."""
    for writer in writers:
        writer.finish()
    arena.cluster.wait_until_full()
    client = arena.cluster.client()
    lanes = [Lane(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
    for lane in lanes:
        history.logs[lane] = client.read(lane.topic, lane.partition, 0)
    _catch_up(history)
    for reader in readers:
        reader.finish()
    consumer = client.consumer(GROUP)
    for place in consumer.committed([TopicPartition(*lane) for lane in lanes], timeout=PATIENCE_S):
        history.committed[Lane(place.topic, place.partition)] = place.offset
    consumer.close()
    report.partitions_compared = _compare_replicas(arena, history)


def _catch_up(history: History) -> None:
    """Let the readers catch up; the checker reports what they have not seen."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    wanted = {lane: len(log) for lane, log in history.logs.items()}
    while time.monotonic() < deadline:
        if all(len(history.seen.get(lane, {})) >= count for lane, count in wanted.items()):
            return
        time.sleep(0.1)


def _compare_replicas(arena: Arena, history: History) -> int:
    """Compare all replicas byte by byte, after all writers have ended; return the number of partitions."""
    found = partition_dirs({f"broker {number}": arena.log_dir(number) for number in arena.cluster.brokers})
    compared = [name for name in found if name.rpartition("-")[0] in (*TOPICS, OFFSETS_TOPIC)]
    ends = {str(lane): len(log) for lane, log in history.logs.items()}
    for name in compared:
        if len(found[name]) != BROKERS:
            history.problems.append(f"replicas differ: {name} lies on {', '.join(found[name])} only")
        history.problems += [f"replicas differ: {name}: {each}" for each in differences(found[name], ends.get(name))]
        one = next(iter(found[name].values()))
        history.problems += [f"sequence: {name}: {each}" for each in broken_sequences(parse_headers(one))]
    return len(compared)


def _keep_logs(arena: Arena, folder: Path) -> None:
    """Keep the logs for people who look for the reason: the machines' disks end with the machines."""
    for number in arena.cluster.brokers:
        shutil.copytree(arena.log_dir(number), folder / "kept" / f"broker-{number}")


def _views(cluster: BarnabasCluster) -> str:
    """Return what each broker reports of partitions that are not in order."""
    lines = []
    for number in cluster.running:
        try:
            bad = [view for view in cluster.describe(as_told_by=number) if not view.is_full]
            lines.append(f"broker {number} says: {bad or 'all full'}")
        except (OSError, AssertionError) as error:
            lines.append(f"broker {number}: {error!r}")
    return "\n".join(lines)


def _tracebacks(cluster: BarnabasCluster) -> list[str]:
    texts = {number: broker.log_text() for number, broker in cluster.brokers.items()}
    return [
        f"traceback: in the log of broker {number}: {text[text.index('Traceback') :][:3000]}"
        for number, text in texts.items()
        if "Traceback" in text
    ]
