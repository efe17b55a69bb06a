"""`barnabas status --watch`: show groups and their lag every 2 s until Ctrl-C."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.output import number
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.cluster_report import ClusterReport
from barnabas_operator.kafka.gather_report import gather_report

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
            report, told_at = reports.next(), Text(time.strftime("%H:%M:%S"), style="dim")
            shown = (Text(report),) if isinstance(report, str) else tables(report)
            live.update(Group(told_at, *shown), refresh=True)
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
