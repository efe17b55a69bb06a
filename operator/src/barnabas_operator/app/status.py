"""`barnabas status`: show the topics, partitions, groups and lag of any Kafka cluster."""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_operator.app.cluster_options import (
    EXIT_FAILED,
    SystemClock,
    add_cluster_options,
    connected,
    console,
    mute_kafka_python,
    number,
    size,
    table,
    target_of,
)
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.gather_report import (
    ClusterReport,
    GroupReport,
    LagReport,
    PartitionReport,
    TopicReport,
    gather_report,
)
from barnabas_operator.kafka.transactions import (
    OpenTransaction,
    TransactionReport,
    TransactionsReport,
    gather_transactions,
)
from barnabas_operator.planning.cluster_state import StrayLog

EVERY_S: Final = 2.0
Tables = Callable[[ClusterReport], tuple[RenderableType, ...]]


class Reports:
    """The reader of the state of a cluster, over a persistent connection."""

    def __init__(self, connect: Callable[[], ClusterAdmin]) -> None:
        self._connect = connect
        self._admin: ClusterAdmin | None = None

    def next(self) -> ClusterReport | str:
        """Return the next report. If no broker answers, return the reason; the next call connects again."""
        try:
            self._admin = self._admin or self._connect()
            return gather_report(self._admin)
        except ClusterUnreachable as error:
            self.close()
            return str(error)

    def close(self) -> None:
        """Close the connection to the brokers."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def watch(out: Console, connect: Callable[[], ClusterAdmin], tables: Tables) -> None:
    """Show the state of the cluster until Ctrl-C.

    On a terminal, the tables are redrawn. If the output is a file or a pipe, a line is printed for each consumer group
    that has changed.
    """
    reports = Reports(connect)
    try:
        if out.is_terminal:
            _redraw(out, reports, tables)
        else:
            _print_lines(out, reports)
    except KeyboardInterrupt:
        return
    finally:
        reports.close()


def _redraw(out: Console, reports: Reports, tables: Tables) -> None:
    with Live(console=out, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            report, shown_at = reports.next(), Text(time.strftime("%H:%M:%S"), style="dim")
            shown = (Text(report),) if isinstance(report, str) else tables(report)
            live.update(Group(shown_at, *shown), refresh=True)
            time.sleep(EVERY_S)


def _print_lines(out: Console, reports: Reports) -> None:
    before: set[str] = set()
    while True:
        report = reports.next()
        lines = [report] if isinstance(report, str) else list(group_lines(report))
        for line in lines:
            if line not in before:
                out.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False)
        before = set(lines)
        time.sleep(EVERY_S)


def group_lines(report: ClusterReport) -> Iterator[str]:
    """Yield a line for each group."""
    for group in report.groups:
        members = "members unknown" if group.members is None else f"{len(group.members)} members"
        yield f"{group.group_id}: {group.state}, {members}, lag {number(group.lag)}"
    if not report.groups:
        yield "no consumer groups"


def transactions_json(report: TransactionsReport) -> str:
    """Return the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def print_transactions(out: Console, report: TransactionsReport, now_ms: int) -> None:
    """Print the known transactions, the open transactions in partitions, and how to abort a hanging transaction."""
    out.print(_transaction_table(report, now_ms) if report.transactions else "no transaction is open")
    if report.open:
        out.print()
        out.print(_open(report, now_ms))
    hanging = next((each for each in report.open if each.transactional_id is None), None)
    if hanging is not None:
        place = f"--topic {hanging.topic} --partition {hanging.partition} --start-offset {hanging.start_offset}"
        out.print(
            "a transaction without a transactional id never times out; if the producer has ended, abort the "
            "transaction with:"
        )
        out.print(f"  barnabas abort-transaction {place}", markup=False)


def _transaction_table(report: TransactionsReport, now_ms: int) -> Table:
    headings = ("TRANSACTIONAL ID", "STATE", "PRODUCER>", "EPOCH>", "AGE>", "TIMEOUT>", "PARTITIONS")
    return table("Transactions", headings, (_transaction_row(each, now_ms) for each in report.transactions))


def _transaction_row(each: TransactionReport, now_ms: int) -> tuple[str, ...]:
    return (
        each.transactional_id,
        each.state,
        str(each.producer_id),
        str(each.producer_epoch),
        "-" if each.started_ms is None else _seconds(now_ms - each.started_ms),
        _seconds(each.timeout_ms),
        ", ".join(f"{topic}-{partition}" for topic, partition in each.partitions) or "-",
    )


def _open(report: TransactionsReport, now_ms: int) -> Table:
    headings = (
        "TOPIC",
        "PARTITION>",
        "HELD BACK>",
        "START OFFSET>",
        "PRODUCER>",
        "EPOCH>",
        "LAST WRITE>",
        "TRANSACTIONAL ID",
    )
    return table("Held back", headings, (_open_row(each, now_ms) for each in report.open))


def _open_row(each: OpenTransaction, now_ms: int) -> tuple[str, ...]:
    return (
        each.topic,
        str(each.partition),
        number(each.held_back),
        str(each.start_offset),
        str(each.producer_id),
        str(each.producer_epoch),
        _seconds(now_ms - each.last_write_ms),
        "none: it hangs" if each.transactional_id is None else each.transactional_id,
    )


def _seconds(duration_ms: int) -> str:
    return f"{number(duration_ms // 1000)} s"


STRAY_LOGS_SHOWN_MAX: Final = 10
TROUBLES: Final = ("offline", "under-replicated")


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code: 0, or 1 if no cluster answers."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.watch and options.output == "json":
        parser.error("--watch and --output json cannot be used together")
    if options.watch and options.transactions:
        parser.error("--watch and --transactions cannot be used together")
    mute_kafka_python()
    out = console()
    try:
        target = target_of(options)
        if options.watch:
            watch(out, lambda: connected(target), _group_tables)
            return 0
        with connected(target) as admin:
            if options.transactions:
                return _transactions(out, admin, options.output)
            report = gather_report(admin)
    except ClusterUnreachable as error:
        out.print(str(error), markup=False)
        if options.bootstrap is None and options.cluster is None:
            out.print("start a cluster with `barnabas up -f examples/quickstart/`, or name a broker with --bootstrap")
        return EXIT_FAILED
    if options.output == "json":
        print(report_json(report))
    elif options.groups:
        for each in _group_tables(report):
            out.print(each)
    else:
        print_report(out, report, wide=options.output == "wide", authenticates=target.security.authenticates)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas status", description=__doc__)
    add_cluster_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("wide", "json"),
        help="wide also shows internal topics; json prints the report as JSON",
    )
    parser.add_argument("-w", "--watch", action="store_true", help="show groups and their lag every 2 s until Ctrl-C")
    parser.add_argument("--groups", action="store_true", help="show only groups and their lag")
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="show open transactions; with -o, show transactions that have ended, too",
    )
    return parser


def _transactions(out: Console, admin: ClusterAdmin, output: str | None) -> int:
    with reachable():
        report = gather_transactions(admin.client, with_ended=output is not None)
    if output == "json":
        print(transactions_json(report))
    else:
        print_transactions(out, report, SystemClock().now_ms())
    return 0


def _group_tables(report: ClusterReport) -> tuple[RenderableType, ...]:
    """Return the tables of `--watch` and `--groups`: the groups, and their lag."""
    return groups_table(report.groups), lag_table(report.groups)


def report_json(report: ClusterReport) -> str:
    """Return the report as JSON, with computed sums and lags."""
    topics = [
        {
            **msgspec.to_builtins(topic),
            "records": topic.records,
            "size_bytes": topic.size_bytes,
            "partitions": [{**msgspec.to_builtins(part), "state": part.state} for part in topic.partitions],
        }
        for topic in report.topics
    ]
    groups = [
        {
            **msgspec.to_builtins(group),
            "lag": group.lag,
            "lags": [msgspec.to_builtins(part) for part in group.lags],
        }
        for group in report.groups
    ]
    whole = {**msgspec.to_builtins(report), "topics": topics, "groups": groups}
    return msgspec.json.format(msgspec.json.encode(whole)).decode()


def print_report(out: Console, report: ClusterReport, *, wide: bool, authenticates: bool = False) -> None:
    """Print the report as tables; `authenticates` is true if the command sent credentials."""
    brokers = ", ".join(f"{broker.broker_id} at {broker.address}" for broker in report.brokers)
    out.print(f"cluster {report.cluster_id}, brokers {brokers}, controller {report.controller_id}", markup=False)
    strangers = [each.address for each in report.brokers if not is_of_this_machine(each.address)]
    if strangers and not authenticates:
        out.print(
            f"insecure: brokers accept clients without authentication at {', '.join(strangers)}"
            " (see docs/how-to/security.md)",
            markup=False,
        )
    troubles = ", ".join(f"{count} {state}" for state in TROUBLES if (count := report.partitions_in(state)))
    out.print(f"partitions: {troubles or 'every replica is in sync'}")
    if report.refuses_transactions:
        out.print("the brokers refuse transactions, because the topic __transaction_state lacks cleanup.policy=compact")
        out.print("  delete the topic if nobody needs its records; the next transaction creates the topic again")
    _print_losses(out, report)
    print_stray_logs(out, report.stray_logs)
    topics = [topic for topic in report.topics if wide or not topic.internal]
    for each in (topics_table(topics), partitions_table(topics), groups_table(report.groups), lag_table(report.groups)):
        if each.row_count:
            out.print()
            out.print(each)
    if not topics:
        out.print("no topics")


def is_of_this_machine(address: str) -> bool:
    """True if only clients on this machine reach `HOST:PORT`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def print_stray_logs(out: Console, strays: Sequence[StrayLog]) -> None:
    """Print the stray logs, and the commands that restore their topics or delete the logs."""
    if not strays:
        return
    total = size(sum(each.size_bytes for each in strays))
    out.print(f"{len(strays)} logs ({total}) are not served, because the metadata does not have their topics")
    for each in strays[:STRAY_LOGS_SHOWN_MAX]:
        offline = ", the log dir is offline" if each.offline else ""
        line = f"  broker {each.broker_id}: {each.directory}, {size(each.size_bytes)}{offline}"
        out.print(line, markup=False, soft_wrap=True)
    if len(strays) > STRAY_LOGS_SHOWN_MAX:
        out.print(f"  and {len(strays) - STRAY_LOGS_SHOWN_MAX} more logs; -o json shows all of them")
    out.print("`barnabas restore-metadata` restores the topics, and `barnabas forget-topic` deletes the logs")


def _print_losses(out: Console, report: ClusterReport) -> None:
    """Print the partitions that are offline because records were lost, and the command that accepts the loss."""
    lost = [part for topic in report.topics for part in topic.partitions if part.lost is not None]
    for part in lost:
        out.print(
            f"  {part.topic}-{part.partition} is offline because every replica lacks committed records: {part.lost}",
            markup=False,
        )
    if lost:
        out.print(
            "to accept the loss and elect the replicas with the longest logs, run `barnabas accept-loss` with --all, "
            "or with --topic TOPIC"
        )


def topics_table(topics: Iterable[TopicReport]) -> Table:
    """Return a table with one line for each topic."""
    headings = ("TOPIC", "PARTITIONS>", "REPLICAS>", "RECORDS>", "SIZE>", "ID")
    return table("Topics", headings, map(_topic_row, topics))


def _topic_row(topic: TopicReport) -> tuple[str, ...]:
    replicas = sorted({len(part.replicas) for part in topic.partitions})
    return (
        topic.name,
        number(len(topic.partitions)),
        " and ".join(map(str, replicas)),
        number(topic.records),
        size(topic.size_bytes),
        topic.topic_id,
    )


def partitions_table(topics: Iterable[TopicReport]) -> Table:
    """Return a table with one line for each partition."""
    headings = ("TOPIC", "PARTITION>", "LEADER>", "REPLICAS", "ISR", "STATE", "EARLIEST>", "END>", "SIZE>")
    rows = (_partition_row(part) for topic in topics for part in topic.partitions)
    return table("Partitions", headings, rows)


def _partition_row(part: PartitionReport) -> tuple[str, ...]:
    return (
        part.topic,
        str(part.partition),
        "none" if part.leader is None else str(part.leader),
        ",".join(map(str, part.replicas)),
        ",".join(map(str, part.isr)),
        part.state,
        number(part.earliest_offset),
        number(part.end_offset),
        size(part.size_bytes),
    )


def groups_table(groups: Iterable[GroupReport]) -> Table:
    """Return a table with one line for each consumer group."""
    headings = ("GROUP", "TYPE", "STATE", "MEMBERS>", "TOPICS", "LAG>")
    return table("Groups", headings, map(_group_row, groups))


def _group_row(group: GroupReport) -> tuple[str, ...]:
    topics = ", ".join(sorted({part.topic for part in group.lags}))
    members = None if group.members is None else len(group.members)
    return group.group_id, group.type, group.state, number(members), topics, number(group.lag)


def lag_table(groups: Iterable[GroupReport]) -> Table:
    """Return a table with one line for each partition that a group reads, even if the group has no members."""
    headings = ("GROUP", "TOPIC", "PARTITION>", "COMMITTED>", "END>", "LAG>", "CLIENT")
    return table("Lag", headings, (_lag_row(group.group_id, part) for group in groups for part in group.lags))


def _lag_row(group_id: str, part: LagReport) -> tuple[str, ...]:
    offsets = map(number, (part.committed_offset, part.end_offset, part.lag))
    return group_id, part.topic, str(part.partition), *offsets, part.client_id or "-"
