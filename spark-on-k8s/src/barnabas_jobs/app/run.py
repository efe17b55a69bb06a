"""Runs one job from its options to its end: Spark is started, the job watched, and Spark stopped however it ends."""

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
from barnabas_jobs.app.watching import watched
from barnabas_jobs.credentials import for_executors
from barnabas_jobs.planning.ending import Ending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import in_bucket, parse
from barnabas_jobs.spark.status import SparkStatus

EXIT_FINDINGS: Final = 3
STOP_SECONDS_MAX: Final = 20.0
"""The seconds to wait for the end, less than the 30 s that Kubernetes gives a pod."""


class Terminated(BaseException):
    """SIGTERM came. No job catches it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The job and options that `barnabas jobs run` was given."""

    job: str
    words: Sequence[str]
    master: str
    jars: Path
    conf: Mapping[str, str]


def run_job(request: Request, pod: DriverPod | None) -> Ending:
    """Run a job; look at its options before Spark starts, which takes seconds. Raises JobFailed, BadOption.

    `sigterm_raises` is around it.
    """
    job = JOBS[request.job].load()
    options = parse(job.Options, request.words)
    with _spark(request, s3=_needs_s3(options)) as spark:
        listeners = [page(), *([pod] if pod else [])]
        with watched(SparkStatus(spark).seen, listeners):
            result = job.run(spark, options)
            # The job has its result: ignore SIGTERM, for a new try would only repeat the work.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return ending_of(result, options)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises Terminated in the main thread, once: a second signal must not interrupt the cleanup."""

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
        # The connection of this thread may still wait for an answer; another thread has a connection of its own.
        stopping = threading.Thread(target=spark.stop, name="stop", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS_MAX)


def ending_of(result: Any, options: Any) -> Ending:
    """The exit code is 128 and the number of the signal that ended a job which had not done all, as of any program."""
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
        return 128 + signal.Signals[ended_by], f"{ended_by} ended it after its last commit; the next run goes on there"
    if not result.fine:
        return EXIT_FINDINGS, f"done, and something is wrong: {result.summary}"
    return 0, "done"
