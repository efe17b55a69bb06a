"""The run of one job: parse its options, start Spark, watch the job, and stop Spark.

Progress is shown on standard error: bars on a terminal, otherwise a line every 10 s. Standard output is for the result
alone.
"""

import importlib
import json
import signal
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Self, TextIO

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars

from barnabas_jobs.app.connector import session
from barnabas_jobs.credentials import for_executors
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import Ending, in_bucket, parse
from barnabas_jobs.planning.progress import Amount, Listener, Pace, Progress, Seen
from barnabas_jobs.spark.failures import ONE_TASK_EACH
from barnabas_jobs.spark.status import SparkStatus


class Job(NamedTuple):
    """A job: a module with `Options` and `run(spark, options) -> Result`, and a summary for the list of jobs.

    `conf` holds the settings of Spark that the job needs.
    """

    module: str
    summary: str
    conf: Mapping[str, str] = {}

    def load(self) -> Any:
        """Import and return the module of the job."""
        return importlib.import_module(self.module)


JOBS: Final = {
    "archive": Job("barnabas_jobs.jobs.archive", "copies a topic to Parquet files, incrementally and exactly once"),
    "audit": Job("barnabas_jobs.jobs.audit", "checks segments, indexes and replicas in log dirs"),
    "compact": Job("barnabas_jobs.jobs.compact", "joins the small files of an archive into larger files"),
    "lag-history": Job(
        "barnabas_jobs.jobs.lag_history",
        "reports the lag of consumer groups over time, and the groups that missed an objective",
    ),
    "restore": Job(
        "barnabas_jobs.jobs.restore",
        "restores an archive, or a part of an archive, into a topic, resumably and exactly once",
        ONE_TASK_EACH,
    ),
    "retention-audit": Job(
        "barnabas_jobs.jobs.retention_audit", "compares the declared retention of topics with the age of their records"
    ),
    "skew": Job(
        "barnabas_jobs.jobs.skew",
        "reports bytes by broker, log dir and partition, and the most frequent keys; plans reassignments that "
        "balance the brokers",
    ),
    "verify": Job("barnabas_jobs.jobs.verify", "compares an archive with its topic by counts, gaps and checksums"),
}


def listing() -> str:
    """Return the list of jobs with the options of each, required options first."""
    return "\n".join(f"{name:<18}{job.summary}\n{'':<18}{_options(job.load().Options)}" for name, job in JOBS.items())


def _options(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    shown = [f"{field.name}=" if field.required else f"[{field.name}={_default(field)}]" for field in fields]
    return " ".join(sorted(shown, key=lambda each: each.startswith("[")))


def _default(field: Any) -> str:
    value = field.default
    if value is msgspec.NODEFAULT or value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


ANNOTATION: Final = "barnabas.dev/progress"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TERMINATION_LOG: Final = Path("/dev/termination-log")
PAUSE_S: Final = 5.0
HEARTBEAT_S: Final = 30.0
"""The seconds after which unchanged progress is written again; the operator waits for it four times as long."""
ANSWER_SECONDS_MAX: Final = 5.0


class DriverPod:
    """The pod of this driver.

    `account` is the folder with the token of the service account and the CA certificate of the API server.
    """

    def __init__(
        self,
        url: str,
        account: Path,
        termination_log: Path,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._account = account
        self._termination_log = termination_log
        self._clock = clock
        self._wall_clock = wall_clock
        self._written: Progress | None = None
        self._written_at_s = -PAUSE_S
        self._refused = False

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the pod of this process, or None if the environment variables do not name it."""
        names = ("BARNABAS_POD_NAMESPACE", "BARNABAS_POD_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        given = [environment.get(name, "") for name in names]
        if not all(given):
            return None
        namespace, name, host, port = given
        host = f"[{host}]" if ":" in host else host
        url = f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods/{name}"
        return cls(url, ACCOUNT, TERMINATION_LOG)

    def update(self, progress: Progress, last: bool = False) -> None:
        """Write changed progress to an annotation of the pod, at most every 5 s but always at the end.

        Progress that does not change is written every 30 s, as a heartbeat. A failure does not stop the job; only the
        first failure is printed.
        """
        now_s = self._clock()
        pause_s = HEARTBEAT_S if progress == self._written else 0.0 if last else PAUSE_S
        if now_s - self._written_at_s < pause_s:
            return
        self._written_at_s = now_s
        text = msgspec.json.encode(replace(progress, at_ms=round(self._wall_clock() * 1000))).decode()
        try:
            self._patch({"metadata": {"annotations": {ANNOTATION: text}}})
            self._written = progress
        except (OSError, HTTPException) as error:
            if not self._refused:
                print(f"barnabas jobs: the progress cannot be written to the pod {self._url}: {error}", file=sys.stderr)
            self._refused = True

    def end(self, ending: Ending) -> None:
        """Write the result to the pod's termination message. If writing fails, only print the reason."""
        try:
            self._termination_log.write_bytes(ending.shortened())
        except OSError as error:
            print(f"barnabas jobs: {self._termination_log} cannot be written: {error.strerror}", file=sys.stderr)

    def _patch(self, change: object) -> None:
        """Send a patch of the pod, with the present token of the service account: Kubernetes replaces it every hour."""
        token = (self._account / "token").read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        request = urllib.request.Request(self._url, json.dumps(change).encode(), headers, method="PATCH")
        trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX, context=trust) as answer:
            answer.read()


LINE_PAUSE_S: Final = 10.0


def page(stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> Listener:
    """Return a display with bars if the stream is a terminal, otherwise a display with lines."""
    return BarsPage(Console(file=stream)) if stream.isatty() else LinesPage(stream, clock)


class LinesPage:
    """A display that prints lines, for a stream that is no terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._printed_at_s = clock()

    def update(self, progress: Progress, last: bool = False) -> None:
        """Print a line of progress if the last line is at least 10 s old.

        Nothing is printed at the end, because the result follows.
        """
        now_s = self._clock()
        if not last and now_s - self._printed_at_s >= LINE_PAUSE_S:
            self._printed_at_s = now_s
            print(progress, file=self._stream, flush=True)


class BarsPage:
    """A display with one bar for each phase, which counts records, and one bar for all Spark stages together."""

    def __init__(self, console: Console) -> None:
        fields = (TextColumn(f"{{task.fields[{name}]}}", style="cyan") for name in ("amount", "pace"))
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *fields)
        self._bars = Bars(*columns, console=console, transient=False)
        self._stages = self._bars.add_task("stages", total=None, amount="", pace="")
        self._phases: dict[str, TaskID] = {}
        self._bars.start()

    def update(self, progress: Progress, last: bool = False) -> None:
        """Update the bar of the stages and that of the phase. A new phase gets a new bar.

        If `last` is true, stop the display.
        """
        if progress.phase not in self._phases:
            self._phases[progress.phase] = self._bars.add_task(progress.phase, total=None, amount="", pace="")
        self._show(self._phases[progress.phase], progress.records, _pace(progress))
        self._show(self._stages, progress.stages, "")
        if last:
            self._bars.stop()

    def _show(self, task: TaskID, amount: Amount, pace: str) -> None:
        self._bars.update(task, completed=amount.done, total=amount.total, amount=str(amount), pace=pace)


def _pace(progress: Progress) -> str:
    left = (
        "" if progress.seconds_left is None else f", {progress.seconds_left // 60}:{progress.seconds_left % 60:02} left"
    )
    return f"{progress.records_per_second:,}/s{left}" if progress.records_per_second else ""


EXIT_FINDINGS: Final = 3
POLL_S: Final = 1.0
"""The pause between two readings of the progress of a job."""
STOP_SECONDS_MAX: Final = 20.0
"""The longest wait for Spark to stop, below the 30 s that Kubernetes by default grants a terminating pod."""


class Terminated(BaseException):
    """The exception that SIGTERM raises; no job catches it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `barnabas jobs run`."""

    job: str
    words: Sequence[str]
    master: str
    jars: Path
    conf: Mapping[str, str]


def run_job(request: Request, pod: DriverPod | None) -> Ending:
    """Parse the options of a job, start Spark, and run the job.

    Raises BadOption for a wrong option, and JobFailed if the job fails. The caller must be in a `sigterm_raises` block.
    Options are parsed before Spark starts, which takes seconds, so that a wrong option fails at once.
    """
    job = JOBS[request.job].load()
    options = parse(job.Options, request.words)
    with _spark(request, s3=_needs_s3(options)) as spark:
        listeners: list[Listener] = [page(), *([pod] if pod else [])]
        with watched(SparkStatus(spark).seen, listeners):
            result = job.run(spark, options)
            # The job has its result. Ignore SIGTERM from here on, because a new run would only repeat the work.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return ending_of(result)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Terminated in the main thread at the first SIGTERM, and ignore any further SIGTERM during the cleanup."""

    def terminate(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _needs_s3(options: msgspec.Struct) -> bool:
    return any(map(in_bucket, msgspec.structs.astuple(options)))


@contextmanager
def _spark(request: Request, *, s3: bool) -> Iterator[SparkSession]:
    try:
        spark = session(
            request.master, request.jars, {**JOBS[request.job].conf, **for_executors(), **request.conf}, s3=s3
        )
    except (PySparkException, OSError) as error:
        raise JobFailed(f"Spark did not start: {error}") from error
    try:
        yield spark
    finally:
        # This thread's connection to the JVM may still wait for an answer, so another thread stops Spark.
        stopping = threading.Thread(target=spark.stop, name="stop", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS_MAX)


@contextmanager
def watched(read: Callable[[], Seen], listeners: Sequence[Listener], pause_s: float = POLL_S) -> Iterator[None]:
    """Pass the progress to the listeners from a thread while the block runs, and the final progress at its end."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(read, listeners, ended, pause_s), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(read: Callable[[], Seen], listeners: Sequence[Listener], ended: threading.Event, pause_s: float) -> None:
    pace = Pace()
    progress = pace.progress(Seen(phase="starting", stages=Amount(0, 0), records=Amount(0, None)), time.monotonic())
    try:
        while not ended.wait(pause_s):
            progress = pace.progress(read(), time.monotonic())
            _update_all(listeners, progress, last=False)
        progress = pace.progress(read(), time.monotonic())
    except Py4JError as error:
        print(f"barnabas jobs: Spark no longer reports the progress of the job: {error}", file=sys.stderr)
    finally:
        _update_all(listeners, progress, last=True)


def _update_all(listeners: Sequence[Listener], progress: Progress, last: bool) -> None:
    for listener in listeners:
        listener.update(progress, last)


def ending_of(result: Any) -> Ending:
    """Return exit code, message and result of a job, and the table with the ledger if the job has an archive.

    The code of a continuous job that a signal ended is 128 plus the number of the signal, as for any program.
    """
    code, message = _judged(result)
    return Ending(
        exit=code,
        message=message,
        result=msgspec.to_builtins(result, str_keys=True),
        ledger=getattr(result, "table", None),
    )


def _judged(result: Any) -> tuple[int, str]:
    ended_by = getattr(result, "ended_by", None)
    if ended_by is not None:
        return 128 + signal.Signals[ended_by], f"{ended_by} ended the job; the next run continues after the last commit"
    if not result.fine:
        return EXIT_FINDINGS, f"the job is done and has findings: {result.summary}"
    return 0, "done"
