"""The run of one job: parse its options, start Spark, watch the job, and stop Spark."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_jobs.app.catalog import JOBS
from barnabas_jobs.app.driver_pod import DriverPod
from barnabas_jobs.app.session import session
from barnabas_jobs.app.terminal import page
from barnabas_jobs.app.watching import Listener, watched
from barnabas_jobs.credentials import for_executors
from barnabas_jobs.planning.ending import Ending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import in_bucket, parse
from barnabas_jobs.spark.status import SparkStatus

EXIT_FINDINGS: Final = 3
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
    return ending_of(result, options)


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


def ending_of(result: Any, options: Any) -> Ending:
    """Return exit code, message and result of a job, and the ledger's folder if the job has an archive.

    The code of a continuous job that a signal ended is 128 plus the number of the signal, as for any program.
    """
    archive = getattr(options, "archive", None)
    code, message = _judged(result)
    return Ending(
        exit=code,
        message=message,
        result=msgspec.to_builtins(result, str_keys=True),
        ledger=None if archive is None else os.path.join(archive, "ledger"),
    )


def _judged(result: Any) -> tuple[int, str]:
    ended_by = getattr(result, "ended_by", None)
    if ended_by is not None:
        return 128 + signal.Signals[ended_by], f"{ended_by} ended the job; the next run continues after the last commit"
    if not result.fine:
        return EXIT_FINDINGS, f"the job is done and has findings: {result.summary}"
    return 0, "done"
