"""The run of one job: parse its options, start Spark, watch the job, and stop Spark."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_jobs.app.catalog import JOBS
from barnabas_jobs.app.driver_pod import DriverPod
from barnabas_jobs.app.session import session
from barnabas_jobs.app.terminal import page
from barnabas_jobs.credentials import for_executors
from barnabas_jobs.planning.ending import Ending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import in_bucket, parse
from barnabas_jobs.planning.progress import Amount, Listener, Pace, Progress, Seen
from barnabas_jobs.spark.status import SparkStatus

EXIT_FINDINGS: Final = 3
LOOK_S: Final = 1.0
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
def watched(look: Callable[[], Seen], listeners: Sequence[Listener], pause_s: float = LOOK_S) -> Iterator[None]:
    """Pass the progress to the listeners from a thread while the block runs, and the final progress at its end."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(look, listeners, ended, pause_s), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(look: Callable[[], Seen], listeners: Sequence[Listener], ended: threading.Event, pause_s: float) -> None:
    pace = Pace()
    progress = pace.progress(Seen(phase="starting", stages=Amount(0, 0), records=Amount(0, None)), time.monotonic())
    try:
        while not ended.wait(pause_s):
            progress = pace.progress(look(), time.monotonic())
            _tell(listeners, progress, last=False)
        progress = pace.progress(look(), time.monotonic())
    except Py4JError as error:
        print(f"barnabas jobs: Spark no longer reports the progress of the job: {error}", file=sys.stderr)
    finally:
        _tell(listeners, progress, last=True)


def _tell(listeners: Sequence[Listener], progress: Progress, last: bool) -> None:
    for listener in listeners:
        listener.tell(progress, last)


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
