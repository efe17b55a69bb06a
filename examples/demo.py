"""The whole of Barnabas on one machine in under a minute: `make demo`.

Starts `barnabas up` on a copy of examples/quickstart: three brokers. Publishes the 336,776 flights that left New York
in 2013 as JSON keyed by carrier, has two consumer groups read them all, raises the topic from 6 to 12 partitions by
editing its manifest while data flows, and kills the broker that leads the busiest partition.
DEMO_KEEP=1 leaves the cluster up until Ctrl-C; DEMO_FLIGHTS=100000 publishes so many of the flights.
Exit code 0 when every count is right.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

try:
    from failover import Failover
    from flights import FLIGHTS, PARTITIONS_AFTER, PARTITIONS_BEFORE, TOPIC, ClientFailed, Group, Publisher
except ModuleNotFoundError as missing:
    sys.exit(f"the package {missing.name} is not installed: run `make venv`, then `make demo`")

from barnabas_operator.app.child_process import MemoryBroken, read_status
from barnabas_operator.app.cluster_options import console, number, table
from barnabas_operator.planning.cluster_state import DesiredState
from barnabas_operator.resources.kind import READY, condition_of

QUICKSTART: Final = Path(__file__).resolve().parent / "quickstart"
UP: Final = (sys.executable, "-m", "barnabas", "up")
STATUS: Final = (sys.executable, "-m", "barnabas", "status")

GROUPS: Final = {"boards": 2, "archive": 3}
"""Consumer groups and their members."""

EDIT_AFTER: Final = FLIGHTS // 3
KILL_AFTER: Final = FLIGHTS // 2
START_SECONDS_MAX: Final = 180.0
READ_SECONDS_MAX: Final = 300.0
STOP_SECONDS_MAX: Final = 120.0
LINE_SECONDS: Final = 2.0
LOG_LINES_SHOWN: Final = 15


class DemoFailed(Exception):
    """What went wrong, and what to do about it."""


class Cluster:
    """`barnabas up` on a copy of the quickstart, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.manifests = folder / "quickstart"
        self.data_dir = folder / "data"
        self.log = folder / "barnabas-up.log"
        shutil.copytree(QUICKSTART, self.manifests)
        self.edit("cluster.yaml", "port: 9092", "port: 0")  # Another cluster may have 9092: any free port will do.
        self._process: subprocess.Popen[bytes] | None = None

    def edit(self, file: str, old: str, new: str) -> None:
        """What a person does in an editor."""
        path = self.manifests / file
        text = path.read_text(encoding="utf-8")
        if old not in text:
            raise DemoFailed(f"{QUICKSTART / file} has no {old!r}: put it back, or change the demo with it")
        path.write_text(text.replace(old, new), encoding="utf-8")

    def start(self) -> None:
        """Returns when the manifests are reconciled."""
        command = (*UP, "-f", str(self.manifests), "--data-dir", str(self.data_dir))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.wait_until(lambda: self.partitions() == PARTITIONS_BEFORE, "the topic is there", START_SECONDS_MAX)

    def wait_until(self, done: Callable[[], bool], what: str, seconds_max: float) -> float:
        """The seconds it took."""
        assert self._process is not None
        began = time.monotonic()
        while not done():
            if self._process.poll() is not None:
                raise DemoFailed(f"barnabas up ended with status {self._process.returncode} before {what}")
            if time.monotonic() - began > seconds_max:
                raise DemoFailed(f"it is not so after {seconds_max:.0f} s that {what}")
            time.sleep(0.05)
        return time.monotonic() - began

    def status(self) -> DesiredState | None:
        """What barnabas up says of its resources."""
        try:
            return read_status(self.data_dir)
        except MemoryBroken as error:
            raise DemoFailed(str(error)) from error

    def partitions(self) -> int:
        """Of the flights topic, once it is ready; else 0."""
        known = self.status()
        topics = [topic for topic in known.topics if topic.topic_name == TOPIC] if known else []
        for status in (topic.status for topic in topics):
            ready = condition_of(status.conditions, READY) if status else None
            if status and ready and ready.status == "True" and status.observed_generation is not None:
                return status.partitions or 0
        return 0

    def addresses(self) -> tuple[str, str]:
        """Bootstrap and metrics."""
        known = self.status()
        status = known.cluster.status if known else None
        if status is None or not status.listeners or not status.metrics:
            raise DemoFailed("barnabas up tells no addresses")
        return status.listeners[0].bootstrap_servers, status.metrics[0]

    def pid_of(self, broker_id: int) -> int:
        """The process of a broker."""
        return int((self.data_dir / f"broker-{broker_id}" / "pid").read_text(encoding="utf-8"))

    def wait_for_end(self) -> None:
        """Until somebody stops it."""
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        """As Ctrl-C would; barnabas up ends its brokers itself."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise DemoFailed(f"barnabas up (process {self._process.pid}) did not stop: killed") from None
        if status != 0:
            raise DemoFailed(f"barnabas up ended with status {status}")

    def kill(self) -> None:
        """For the end in whatever way: nothing is left running."""
        with suppress(DemoFailed):
            self.stop()

    def log_end(self) -> str:
        """The last lines of barnabas up."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])


class Show:
    """Progress bars on a terminal; elsewhere a line every few seconds."""

    def __init__(self, out: Console, publisher: Publisher, groups: Sequence[Group]) -> None:
        self._out = out
        self._counts: dict[str, Callable[[], int]] = {"published": lambda: publisher.sent}
        self._counts |= {f"read by {group.name}": lambda group=group: group.read for group in groups}  # type: ignore[misc]
        columns = (TextColumn("{task.description:<26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=out)
        self._tasks = {name: self._progress.add_task(name, total=FLIGHTS) for name in self._counts}
        self._line_at = time.monotonic() + LINE_SECONDS
        if out.is_terminal:
            self._progress.start()

    def update(self) -> None:
        """To be called often."""
        counts = {name: count() for name, count in self._counts.items()}
        for name, count in counts.items():
            self._progress.update(self._tasks[name], completed=count)
        if not self._out.is_terminal and time.monotonic() > self._line_at:
            self._line_at += LINE_SECONDS
            self._out.print(", ".join(f"{name} {count:,}" for name, count in counts.items()))

    def end(self) -> None:
        """Leaves the bars as they are."""
        if self._out.is_terminal:
            self._progress.stop()


def run(cluster: Cluster, out: Console) -> None:
    """The story, from the first process to the last count."""
    began = time.monotonic()
    cluster.start()
    bootstrap, metrics = cluster.addresses()
    out.print(f"barnabas up: ready after {time.monotonic() - began:.1f} s at {bootstrap}, metrics at {metrics}")
    groups = [Group(name, members, bootstrap) for name, members in GROUPS.items()]
    publisher = Publisher(bootstrap)
    show = Show(out, publisher, groups)
    story = Story(cluster, publisher, groups, bootstrap, out)
    try:
        for worker in (*(member for group in groups for member in group.members), publisher):
            worker.start()
        flow(story, show)
        show.end()
        check(publisher, groups)
        report(story, metrics)
    finally:
        show.end()
        finish(story)


class Story:
    """What happens while data flows: a third of the way the manifest is edited, half-way a broker is killed."""

    def __init__(
        self, cluster: Cluster, publisher: Publisher, groups: Sequence[Group], bootstrap: str, out: Console
    ) -> None:
        self.publisher = publisher
        self.groups = groups
        self.bootstrap = bootstrap
        self.out = out
        self.failover: Failover | None = None
        self._cluster = cluster
        self._edited_at: float | None = None
        self._raised = False
        self._events_told = 0

    @property
    def is_over(self) -> bool:
        """Whether everybody has everything, and the cluster is whole."""
        done = self.failover is not None and self.failover.done
        return done and self.publisher.acknowledged >= FLIGHTS and all(map(complete, self.groups))

    @property
    def failures(self) -> list[str]:
        """What went wrong anywhere."""
        parts = (self.publisher, *self.groups, *((self.failover,) if self.failover else ()))
        return [part.failure for part in parts if part.failure]

    def go_on(self) -> None:
        """To be called often."""
        acknowledged = self.publisher.acknowledged
        if self._edited_at is None and acknowledged >= EDIT_AFTER:
            self._cluster.edit("topics.yaml", f"partitions: {PARTITIONS_BEFORE}", f"partitions: {PARTITIONS_AFTER}")
            self._edited_at = time.monotonic()
        elif self._edited_at and not self._raised and self._cluster.partitions() == PARTITIONS_AFTER:
            self._raised = True
            self.out.print(
                f"{PARTITIONS_AFTER} partitions {time.monotonic() - self._edited_at:.1f} s after the manifest was "
                f"edited ({acknowledged:,} flights published by then)"
            )
        if self.failover is None and acknowledged >= KILL_AFTER:
            self.failover = Failover(self.bootstrap, self.publisher, self._cluster.pid_of)
            self.failover.start()
        self._tell_failover()

    def _tell_failover(self) -> None:
        events = self.failover.events if self.failover else []
        for event in events[self._events_told :]:
            self.out.print(f"{event.after_s:7.3f} s: {event.what}")
        self._events_told = len(events)


def flow(story: Story, show: Show) -> None:
    """Until everybody has everything."""
    deadline = time.monotonic() + READ_SECONDS_MAX
    while not story.is_over:
        if story.failures:
            raise DemoFailed("; ".join(story.failures))
        story.go_on()
        if time.monotonic() > deadline:
            raise DemoFailed(f"not everything was read within {READ_SECONDS_MAX:.0f} s")
        show.update()
        time.sleep(0.05)
    story.go_on()
    show.update()


def complete(group: Group) -> bool:
    """Whether its members have read everything and share all partitions."""
    shared = sorted(partition for member in group.members for partition in member.partitions)
    return group.read >= FLIGHTS and shared == list(range(PARTITIONS_AFTER))


def check(publisher: Publisher, groups: Sequence[Group]) -> None:
    """Every count is right."""
    if len(publisher.by_partition) <= PARTITIONS_BEFORE or max(publisher.by_partition) < PARTITIONS_BEFORE:
        raise DemoFailed(f"the producer used the partitions {sorted(publisher.by_partition)} only")
    for group in groups:
        if group.read != FLIGHTS or group.skipped:
            told = f"read {group.read:,}, skipped {group.skipped:,}"
            raise DemoFailed(f"{group.name}: {told}; expected {FLIGHTS:,} and 0")


def again(groups: Sequence[Group]) -> str:
    """A group whose coordinator was killed goes on from what it had committed: some records may come again."""
    repeated = sum(group.repeated for group in groups)
    return f"{repeated:,} read again after the kill" if repeated else "none twice"


def report(story: Story, metrics: str) -> None:
    """The tables."""
    publisher, groups, out = story.publisher, story.groups, story.out
    rows = [
        (group.name, member.name, number(member.read), ", ".join(map(str, member.partitions)))
        for group in groups
        for member in group.members
    ]
    out.print()
    out.print(table("Members", ("GROUP", "MEMBER", "READ>", "PARTITIONS"), rows))
    read = min(group.read for group in groups)
    out.print(
        f"{publisher.acknowledged:,} flights acknowledged, {read:,} read by each group: none lost, {again(groups)}"
    )
    added = sum(count for partition, count in publisher.by_partition.items() if partition >= PARTITIONS_BEFORE)
    out.print(f"{added:,} flights went to the {PARTITIONS_AFTER - PARTITIONS_BEFORE} added partitions")
    out.print()
    if subprocess.run((*STATUS, "--bootstrap", story.bootstrap), check=False).returncode != 0:
        raise DemoFailed("barnabas status failed")
    with urllib.request.urlopen(metrics, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    out.print()
    out.print(f"bootstrap {story.bootstrap}")
    out.print(f"metrics   {metrics} ({sum(not line.startswith('#') for line in lines)} series)")


def finish(story: Story) -> None:
    """Every thread ends, every member leaves its group."""
    publisher, groups, failover = story.publisher, story.groups, (story.failover,) if story.failover else ()
    for part in (publisher, *groups, *failover):
        part.stopping.set()
    for worker in (publisher, *failover, *(member for group in groups for member in group.members)):
        if worker.ident is not None:
            worker.join(STOP_SECONDS_MAX)
    for group in groups:
        for member in group.members:
            member.close()


def keep(cluster: Cluster, out: Console) -> None:
    """DEMO_KEEP=1: until Ctrl-C."""
    out.print(f"it stays up: edit {cluster.manifests}, or ask .venv/bin/barnabas status --data-dir {cluster.data_dir}")
    out.print("Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        cluster.wait_for_end()


def main() -> int:
    """Exit code 0 when everything was as promised, 1 otherwise, 130 after Ctrl-C."""
    out = console()
    folder = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    cluster = Cluster(folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(cluster, out)
        if os.environ.get("DEMO_KEEP") == "1":
            keep(cluster, out)
        cluster.stop()
        status = 0
    except (DemoFailed, ClientFailed, OSError) as error:
        cluster.kill()
        out.print(f"the demo failed: {error}", markup=False)
        out.print(f"see {cluster.log} and the brokers' logs in {cluster.data_dir}; the end of the first:", markup=False)
        out.print(cluster.log_end(), markup=False)
        return 1
    except KeyboardInterrupt:
        cluster.kill()
        status = 130
    shutil.rmtree(folder)
    out.print("the demo is over; nothing is left running")
    return status


if __name__ == "__main__":
    sys.exit(main())
