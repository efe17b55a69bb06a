"""`barnabas up`: run the cluster and the topics of manifest files until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import logging
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from watchfiles import Change, awatch

from barnabas_kafka.addresses import PORT_MAX
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_operator.app import child_process as data_dirs
from barnabas_operator.app.child_process import ChildFailed, DataDir, DataDirHeld, MemoryBroken
from barnabas_operator.app.cluster_options import (
    Log,
    SystemClock,
    console,
    declared_groups_table,
    group_rows,
    mute_kafka_python,
    topic_rows,
    topics_table,
    user_rows,
    users_table,
    without_numbers,
)
from barnabas_operator.app.local_cluster import LocalCluster, PortTaken, Rollout
from barnabas_operator.app.local_groups import GROUPS_POLL_S, LocalConsole, LocalExporter, LocalGroups
from barnabas_operator.app.local_users import LocalUsers, SecurityBroken
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.cluster_checks import refuse_change, refuse_while_running
from barnabas_operator.planning.brokers.local_properties import manifest_problems
from barnabas_operator.planning.cluster_state import ClusterState, DesiredState, remember
from barnabas_operator.planning.conditions import Refusal, time_text
from barnabas_operator.planning.topics.reconcile_plan import MovePlan
from barnabas_operator.planning.topics.replica_moves import describe
from barnabas_operator.reconcile.brokers.dynamic_config_reconciler import VersionOutcome, reconcile_metadata_version
from barnabas_operator.reconcile.topics.topic_reconciler import Outcome, reconcile_topics
from barnabas_operator.reconcile.worker_environment import Seen
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.yaml_documents import ManifestError, Manifests, Place, parse_manifests

SUFFIXES: Final = frozenset({".yaml", ".yml"})
# Editors often save by several writes and a rename, so a change is reported only after a pause without changes.
QUIET_MS: Final = 50
DELAY_MS_MAX: Final = 400


def read_manifests(path: Path) -> Manifests:
    """Return the manifests of a directory or a file, with all errors found; hidden files are not read."""
    texts: dict[str, str] = {}
    unreadable: list[ManifestError] = []
    for file in manifest_files(path):
        try:
            texts[str(file)] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(ManifestError(Place(str(file), 1, 1), f"the file cannot be read: {error}"))
    manifests = parse_manifests(texts)
    manifests = manifests._replace(errors=(*unreadable, *manifests.errors))
    return manifests._replace(errors=manifest_problems(manifests, str(path)))


def manifest_files(path: Path) -> list[Path]:
    """Return the .yaml and .yml files of a directory, sorted by name, or the file itself."""
    return sorted(file for file in path.iterdir() if _counts(file)) if path.is_dir() else [path]


def _counts(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".")


async def changes(path: Path) -> AsyncIterator[None]:
    """Yield None after each burst of changes to manifest files, so that the caller reads the files again."""
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent

    def counts(_change: Change, name: str) -> bool:
        return _counts(Path(name)) if is_folder else Path(name).name == path.name

    watch = awatch(folder, watch_filter=counts, step=QUIET_MS, debounce=DELAY_MS_MAX, recursive=False)
    async for _changed in watch:
        yield None


RETRY_S: Final = 1.0
CONNECT_S_MAX: Final = 10.0
CONNECT_ATTEMPT_S: Final = 2.0
"""The time limit in seconds of one attempt to connect; it is short, because a thread cannot be interrupted."""

STOPPED: Final = Refusal("Stopped", "barnabas up has ended")


ConnectLocally = Callable[[str, float, Credentials], ClusterAdmin]
"""A function that connects to `host:port[,host:port]`, within a time limit in seconds, with credentials.

Raises ClusterUnreachable if no broker answers.
"""


def connected_admin(bootstrap: str, timeout_s: float, security: Credentials) -> ClusterAdmin:
    """Return a connection to the cluster. Raises ClusterUnreachable if no broker answers."""
    return ClusterAdmin(bootstrap, SystemClock(), timeout_s, security=security)


class UpFailed(Exception):
    """The error that the cluster cannot start; the message has the reason."""


class Supervisor:
    """A run of `barnabas up`, which reconciles brokers and topics with the manifests until `stop`."""

    def __init__(
        self,
        manifests_path: Path,
        data_dir: DataDir,
        log: Log,
        drift_check_s: float,
        console_port: int | None = None,
        connect: ConnectLocally = connected_admin,
    ) -> None:
        self._connect = connect
        self._manifests_path = manifests_path
        self._data_dir = data_dir
        self._log = log
        self._drift_check_s = drift_check_s
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._nudged = asyncio.Event()
        self._clock = SystemClock()
        self._cluster = LocalCluster(data_dir, log.say, self._nudged.set)
        self._exporter = LocalExporter(data_dir, log.say)
        self._console = LocalConsole(data_dir, console_port, log.say)
        self._groups = LocalGroups(
            lambda: self._cluster.own_bootstrap, nullcontext, self._clock, lambda: self._cluster.own_security
        )
        self._users = LocalUsers(data_dir.path, self._connected, self._clock)
        self._rollout = Rollout(self._cluster, self._read_state, self._balance, log.say)
        self._admin: ClusterAdmin | None = None
        self._reachable = True
        self._pause_s = drift_check_s
        self._cluster_problem: Refusal | None = None
        self._rows_shown: list[tuple[str, ...]] = []
        self._groups_shown: list[tuple[str, ...]] = []
        self._users_shown: list[tuple[str, ...]] = []
        self._troubles_shown = (0, 0)
        self._failures_shown: Sequence[str] = ()
        self._version_refused: Refusal | None = None

    def _now(self) -> str:
        return time_text(self._clock.now_ms())

    def stop(self) -> None:
        """End `run`, which then stops all processes in order."""
        self._stopping.set()

    async def run(self, manifests: Manifests) -> None:
        """Reconcile until `stop`, and then stop all processes. Raises UpFailed if the cluster cannot start."""
        known = self._remembered()
        self._wanted = remember(manifests, known, self._now(), _new_uid)
        refusal = refuse_change(known.cluster, self._wanted.cluster) if known else None
        if refusal is not None:
            raise UpFailed(f"{refusal.reason}: {refusal.message}")
        watcher = asyncio.create_task(self._watch())
        try:
            await self._unless_stopping(self._start())
            while not self._stopping.is_set():
                await self._unless_stopping(self._round())
                await self._wait_for_change()
                if self._changed.is_set():
                    await self._unless_stopping(self._take_changes())
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            await self._end()

    def _remembered(self) -> DesiredState | None:
        try:
            return self._data_dir.read_status()
        except MemoryBroken as error:
            self._log.say(f"the state of the last `barnabas up` cannot be read, and is ignored: {error}")
            return None

    async def _start(self) -> None:
        self._proven = self._wanted.cluster
        await self._cluster.end_leftovers()
        try:
            self._cluster.give_places(self._proven)
            await self._cluster.start(self._proven)
        except (ChildFailed, PortTaken, SecurityBroken) as error:
            raise UpFailed(str(error)) from error
        self._log.say(f"the cluster {self._wanted.cluster.metadata.name} is up: {self._cluster.bootstrap}")
        self._cluster.print_users(self._proven)

    async def _watch(self) -> None:
        async for _ in changes(self._manifests_path):
            self._changed.set()

    async def _wait_for_change(self) -> None:
        """Wait until the pause is over, a manifest changes, `stop` is called, or a broker ends or is ready again."""
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, self._changed, self._nudged)]
        await asyncio.wait(waits, timeout=self._pause_s, return_when=asyncio.FIRST_COMPLETED)
        self._nudged.clear()
        for wait in waits:
            wait.cancel()

    async def _unless_stopping(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, and cancel it on `stop`."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stopping.is_set():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        else:
            await task

    async def _round(self) -> None:
        """Reconcile all declared resources once, write statuses, and set the pause until the next reconciliation."""
        self._pause_s = self._drift_check_s
        waiting = await self._bring_brokers()
        await self._exporter.bring(self._proven.spec.lag_exporter, self._cluster.own_bootstrap, self._cluster.own_tls)
        await self._console.bring(self._cluster.own_bootstrap, self._cluster.own_tls)
        try:
            await asyncio.to_thread(lambda: self._cluster.bring_users(self._connected(), self._proven))
            outcome = await asyncio.to_thread(self._reconcile)
            await self._bring_users()
            version = await asyncio.to_thread(self._bring_version, outcome.state)
        except ClusterUnreachable as error:
            if self._reachable:
                self._log.say(f"the cluster does not answer, trying again: {error}")
            self._reachable = False
            self._drop_admin()
            self._pause_s = RETRY_S
            self._write_status(self._cluster_problem or waiting, None)
            return
        self._reachable = True
        self._wanted = self._wanted._replace(topics=outcome.wanted.topics, removed=outcome.wanted.removed)
        await self._bring_groups()
        if outcome.done or outcome.state.is_moving or outcome.state.troubles or version.done:
            self._pause_s = RETRY_S
        self._show(outcome)
        self._print_version(version)
        problem = self._cluster_problem or waiting or version.refusal
        self._write_status(problem, outcome.state, outcome.ahead)

    async def _bring_users(self) -> None:
        wanted = self._wanted
        if not wanted.users and not wanted.removed_users:
            return
        brought = await self._users.bring(self._proven, wanted.users, wanted.removed_users, self._cluster.bootstrap)
        users = tuple(each.user for each in brought.declared)
        self._wanted = wanted._replace(users=users, removed_users=brought.kept)
        for line in brought.done:
            self._log.say(line)
        rows = user_rows((*users, *brought.kept))
        if rows and rows != self._users_shown:
            self._log.out.print(users_table(rows))
        self._users_shown = rows

    async def _bring_groups(self) -> None:
        wanted = self._wanted
        if not wanted.groups and not wanted.removed_groups:
            return
        brought = await self._groups.bring(wanted.cluster, wanted.groups, wanted.removed_groups)
        self._wanted = wanted._replace(groups=brought.declared, removed_groups=brought.removed)
        self._pause_s = min(self._pause_s, RETRY_S if brought.is_busy else GROUPS_POLL_S)
        groups = (*brought.declared, *brought.removed)
        rows = [without_numbers(row) for row in group_rows(groups)]
        if rows and rows != self._groups_shown:
            self._log.out.print(declared_groups_table(group_rows(groups)))
        self._groups_shown = rows

    async def _bring_brokers(self) -> Refusal | None:
        """Change the brokers step by step until they are as declared; return None, or why some are not yet as declared.

        If a broker cannot start after a change of the Cluster, the change is discarded.
        """
        wanted = self._wanted.cluster
        try:
            waiting = await self._rollout.advance(wanted, self._changed.is_set)
        except ChildFailed as error:
            self._pause_s = RETRY_S
            failure = Refusal("BrokerFailed", str(error))
            if wanted.spec == self._proven.spec:
                self._log.say(failure.message)
                return failure
            return self._take_back(failure)
        if waiting is None:
            self._proven = wanted
            await self._forget(wanted.spec.brokers.replicas)
        else:
            self._pause_s = RETRY_S
        return waiting

    def _take_back(self, why: Refusal) -> Refusal:
        self._log.say(f"the Cluster stays as it was: {why.message}")
        self._cluster_problem = why
        self._wanted = self._wanted._replace(cluster=self._proven)
        self._cluster.give_places(self._proven)
        return why

    async def _read_state(self) -> ClusterState | None:
        try:
            return await asyncio.to_thread(lambda: self._connected().cluster_state())
        except ClusterUnreachable:
            self._drop_admin()
            return None

    async def _balance(self) -> None:
        try:
            await asyncio.to_thread(lambda: self._connected().balance_leaders())
        except ClusterUnreachable as error:
            self._log.say(f"leaders could not be moved back to their preferred brokers: {error}")
            self._drop_admin()

    async def _forget(self, count: int) -> None:
        """Unregister removed brokers, because the cluster would list them for ever."""
        try:
            for number in await asyncio.to_thread(lambda: self._connected().forget_brokers(count)):
                self._log.say(f"broker-{number} is no longer registered")
        except ClusterUnreachable:  # A later request of the reconciliation reports the error.
            self._drop_admin()

    def _reconcile(self) -> Outcome:
        admin = self._connected()
        return reconcile_topics(admin, self._wanted, self._now(), Seen(admin.cluster_state()))

    def _bring_version(self, state: ClusterState) -> VersionOutcome:
        cluster = self._wanted.cluster
        return reconcile_metadata_version(self._connected(), cluster, self._cluster.views(cluster), state)

    def _connected(self) -> ClusterAdmin:
        end_s = self._clock.monotonic_s() + CONNECT_S_MAX
        while self._admin is None:
            try:
                self._admin = self._connect(self._cluster.own_bootstrap, CONNECT_ATTEMPT_S, self._cluster.own_security)
            except ClusterUnreachable:
                if self._stopping.is_set() or self._clock.monotonic_s() > end_s:
                    raise
        return self._admin

    def _drop_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin = None

    def _show(self, outcome: Outcome) -> None:
        for line in map(describe, outcome.done):
            self._log.say(line)
        for line in outcome.failed:
            if line not in self._failures_shown:
                self._log.say(line)
        self._failures_shown = outcome.failed
        self._print_troubles(len(outcome.state.troubles), sum(each.offline for each in outcome.state.troubles))
        rows = topic_rows((*outcome.wanted.topics, *outcome.wanted.removed))
        if rows != self._rows_shown:
            self._log.out.print(topics_table(rows))
        self._rows_shown = rows

    def _print_troubles(self, behind: int, offline: int) -> None:
        """Print a line when the number of under-replicated or offline partitions changes."""
        if (behind, offline) != self._troubles_shown:
            lack = f"{behind} partitions have replicas out of sync, and {offline} of these partitions have no leader"
            self._log.say(lack if behind else "every replica of every partition is in sync again")
        self._troubles_shown = behind, offline

    def _print_version(self, version: VersionOutcome) -> None:
        if version.done is not None:
            self._log.say(
                f"{version.done}: brokers without this metadata version can no longer start with this data directory"
            )
        if version.refusal is not None and version.refusal != self._version_refused:
            self._log.say(version.refusal.message)
        self._version_refused = version.refusal

    def _write_status(self, problem: Refusal | None, state: ClusterState | None, ahead: MovePlan | None = None) -> None:
        cluster = self._wanted.cluster
        status = self._cluster.status(cluster, self._now(), problem, state, ahead)
        self._wanted = self._wanted._replace(cluster=replace(cluster, status=status))
        self._data_dir.write_status(self._wanted)

    async def _take_changes(self) -> None:
        """Read the manifests again; change nothing if they are invalid.

        If the change of the Cluster is refused, keep the previous Cluster, but take the changes of other resources.
        """
        self._changed.clear()
        manifests = read_manifests(self._manifests_path)
        if manifests.errors:
            self._log.complain("the manifests are invalid; nothing changes until they are fixed:", manifests.errors)
            return
        before = self._wanted.cluster
        wanted = remember(manifests, self._wanted, self._now(), _new_uid)
        self._cluster_problem = self._objection(before, wanted.cluster)
        if self._cluster_problem is not None:
            self._log.say(f"the Cluster stays as it was: {self._cluster_problem.message}")
            wanted = wanted._replace(cluster=before)
        self._wanted = wanted

    def _objection(self, before: Cluster, after: Cluster) -> Refusal | None:
        """Check the new Cluster, choose ports and create certificates; return the refusal of the change, or None."""
        refusal = refuse_change(before, after) or refuse_while_running(before, after)
        if refusal is not None:
            return refusal
        try:
            self._cluster.give_places(after)
        except PortTaken as error:
            return Refusal("PortTaken", str(error))
        except SecurityBroken as error:
            return Refusal("SecurityBroken", str(error))
        return None

    async def _end(self) -> None:
        self._log.say("stopping")
        await self._console.stop()
        await self._exporter.stop()
        self._groups.close()
        await self._cluster.stop()
        self._drop_admin()
        if self._wanted.cluster.status is not None:
            self._write_status(STOPPED, None)
        self._log.say("stopped; no process is left running")


def _new_uid() -> str:
    return str(uuid.uuid4())


EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
DRIFT_CHECK_S: Final = 30.0
CONSOLE_PORT: Final = 9080


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 after a signal, 1 after a failure, 2 for wrong options or manifests."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    mute_kafka_python()
    log = Log(console())
    if not options.file.exists():
        log.say(f"--file {options.file}: there is no such file or directory")
        return EXIT_USAGE
    manifests = read_manifests(options.file)
    if manifests.errors:
        log.complain("the manifests are invalid; nothing was started:", manifests.errors)
        return EXIT_USAGE
    try:
        data_dir = DataDir(options.data_dir)
    except (DataDirHeld, OSError) as error:
        log.say(f"--data-dir: {error}")
        return EXIT_FAILED
    try:
        asyncio.run(_run(options, data_dir, manifests, log))
    except UpFailed as error:
        log.say(str(error))
        return EXIT_FAILED
    finally:
        data_dir.release()
    return 0


async def _run(options: argparse.Namespace, data_dir: DataDir, manifests: Manifests, log: Log) -> None:
    supervisor = Supervisor(options.file, data_dir, log, options.drift_check_s, options.console)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    await supervisor.run(manifests)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas up", description=__doc__)
    parser.add_argument("-f", "--file", type=Path, required=True, help="a directory of manifests, or one manifest")
    parser.add_argument("--data-dir", type=Path, default=data_dirs.DEFAULT, help="default: %(default)s")
    parser.add_argument(
        "--drift-check-s",
        type=float,
        default=DRIFT_CHECK_S,
        help="the seconds between two checks of the topics while no manifest changes; default: %(default)s",
    )
    parser.add_argument(
        "--console",
        type=_port,
        nargs="?",
        const=CONSOLE_PORT,
        metavar="PORT",
        help=f"serve the console, with pages of the cluster, at this port of the machine, or a free one; default "
        f"without PORT: {CONSOLE_PORT}",
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a port from 1 to {PORT_MAX}")
    return int(text)
