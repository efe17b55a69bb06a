"""`barnabas jobs`: runs a job, lists them, or fetches what Spark needs to speak with Kafka."""

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import PySparkException

from barnabas_jobs.app.catalog import JOBS, listing
from barnabas_jobs.app.connector import default_folder, jars
from barnabas_jobs.app.session import session
from barnabas_jobs.planning.errors import BadOption, JobFailed
from barnabas_jobs.planning.options import parse

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FINDINGS: Final = 3
MASTER: Final = re.compile(r"local|local\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\]|spark://.+|k8s://.+|yarn")
CONF: Final = re.compile(r"(spark\.[^=\s]+)=(.*)")


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code: 0 done, 1 failed, 2 bad options, 3 the job ran and found something wrong."""
    given = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = given.command
        return command(given)
    except BadOption as error:
        print(f"barnabas jobs: {error}", file=sys.stderr)
        return EXIT_USAGE
    except JobFailed as error:
        print(f"barnabas jobs: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(given: argparse.Namespace) -> int:
    """Prints the job's result as JSON. Options are looked at before Spark starts, which takes seconds."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # No job uses it.
    job = JOBS[given.job].load()
    options = parse(job.Options, given.option)
    try:
        spark = session(given.master, given.jars, dict(given.conf))
    except (PySparkException, OSError) as error:
        raise JobFailed(f"Spark did not start: {error}") from error
    try:
        result = job.run(spark, options)
    finally:
        spark.stop()
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    return 0 if result.fine else EXIT_FINDINGS


def _list(_: argparse.Namespace) -> int:
    print(listing())
    return 0


def _fetch_jars(given: argparse.Namespace) -> int:
    for jar in jars(given.jars):
        print(jar)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas jobs", description="Maintenance of topics as Spark jobs.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job; exit code 3 where it ran and found something wrong")
    run.add_argument("job", choices=sorted(JOBS), metavar="NAME", help=f"one of {', '.join(JOBS)}")
    run.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="see `barnabas jobs list`")
    run.add_argument("--master", type=_master, default="local[*]", help="Spark's master; local[*] is this machine")
    run.add_argument("--conf", type=_conf, action="append", default=[], metavar="spark.NAME=VALUE")
    run.set_defaults(command=_run)
    listed = commands.add_parser("list", help="the jobs and their options")
    listed.set_defaults(command=_list)
    fetch = commands.add_parser("fetch-jars", help="fetch Spark's Kafka connector now; `run` does so when it lacks")
    fetch.set_defaults(command=_fetch_jars)
    for each in (run, fetch):
        each.add_argument(
            "--jars", type=Path, default=default_folder(), metavar="FOLDER", help="where the jars are kept"
        )
    return parser


def _master(text: str) -> str:
    if not MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: local[*], local[N], spark://HOST:PORT, k8s://URL, yarn")
    return text


def _conf(text: str) -> tuple[str, str]:
    found = CONF.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: spark.NAME=VALUE")
    return found[1], found[2]
