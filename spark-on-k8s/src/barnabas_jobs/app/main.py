"""`barnabas jobs`: run a job, list the jobs, or fetch the jars of Spark's Kafka connector."""

import argparse
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from barnabas_jobs.app.connector import JARS, S3_JARS, default_folder, jars, run_executor
from barnabas_jobs.app.run import JOBS, DriverPod, Request, Terminated, listing, run_job, sigterm_raises
from barnabas_jobs.credentials import OPTION, use_command_config
from barnabas_jobs.planning.errors import BadOption, JobFailed, JobFailedLate, Refused
from barnabas_jobs.planning.options import Ending

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FAILED_LATE: Final = os.EX_TEMPFAIL
EXIT_TERMINATED: Final = 128 + signal.SIGTERM
FINDINGS_PRINTED_MAX: Final = 100
DONE: Final = Ending(exit=0, message="done")
Command = Callable[[argparse.Namespace, DriverPod | None], Ending]
MASTER: Final = re.compile(r"local|local\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\]|spark://.+|k8s://.+|yarn")
OF_SUBMISSION: Final = ("SPARK_APPLICATION_ID", "SPARK_CONF_DIR", "SPARK_DRIVER_BIND_ADDRESS", "SPARK_LOCAL_DIRS")
"""The variables that spark-submit sets for its own JVM.

The command `driver` removes them, because executors would inherit a wrong local folder from SPARK_LOCAL_DIRS.
"""
CONF: Final = re.compile(r"(spark\.[^=\s]+)=(.*)")


def main(arguments: Sequence[str]) -> int:
    """Run a command, and return its exit code.

    0: done. 1: failed. 2: wrong arguments or refused. 3: the job found something wrong. 143: ended by SIGTERM. A
    continuous job also returns 75 if it failed after an hour or more, and 130 if Ctrl-C ended it.
    """
    pod = DriverPod.here(os.environ)
    ending = _ending(arguments, pod)
    if ending.exit != 0:
        print(f"barnabas jobs: {ending.message}", file=sys.stderr)
    if pod:
        pod.end(ending)
    return ending.exit


def _ending(arguments: Sequence[str], pod: DriverPod | None) -> Ending:
    try:
        with sigterm_raises():
            given = _parser().parse_args(arguments)
            command: Command = given.command
            return command(given, pod)
    except (BadOption, Refused) as error:
        return Ending(exit=EXIT_USAGE, message=str(error))
    except JobFailedLate as error:
        return Ending(exit=EXIT_FAILED_LATE, message=str(error))
    except JobFailed as error:
        return Ending(exit=EXIT_FAILED, message=str(error))
    except Terminated:
        return Ending(
            exit=EXIT_TERMINATED, message="SIGTERM ended the job; only results committed before SIGTERM are kept"
        )
    except Exception as error:
        # An unexpected error is a bug: print the traceback for developers, and still report a failure to the pod.
        traceback.print_exc()
        return Ending(exit=EXIT_FAILED, message=f"{type(error).__name__}: {error}")


def _run(given: argparse.Namespace, pod: DriverPod | None) -> Ending:
    # No job uses pandas, so this warning would only confuse users.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    if given.command_config is not None:
        use_command_config(given.command_config)
    request = Request(job=given.job, words=given.option, master=given.master, jars=given.jars, conf=dict(given.conf))
    ending = run_job(request, pod)
    result = msgspec.json.encode(ending.result)
    # In a pod the result is printed on one line, because log collectors take each line for a message.
    print((result if pod else msgspec.json.format(result, indent=2)).decode(), flush=True)
    for finding in (ending.result or {}).get("findings", ())[:FINDINGS_PRINTED_MAX]:
        print(f"finding: {finding if isinstance(finding, str) else finding['detail']}", file=sys.stderr)
    return ending


def _list(_: argparse.Namespace, __: DriverPod | None) -> Ending:
    print(listing())
    return DONE


def _fetch_jars(given: argparse.Namespace, _: DriverPod | None) -> Ending:
    for jar in jars(given.jars, (*JARS, *S3_JARS) if given.s3 else JARS):
        print(jar)
    return DONE


def _executor(_: argparse.Namespace, __: DriverPod | None) -> Ending:
    run_executor()
    return DONE


def _driver(given: argparse.Namespace, pod: DriverPod | None) -> Ending:
    """Run a job in a driver pod that `spark-submit` has created for Kubeflow's Spark operator.

    In such a pod Spark usually starts a JVM, and the JVM runs a Python file. This command instead runs the job itself,
    as the pods of a MaintenanceJob do. The arguments after the name of the Python file are those of `barnabas jobs`.
    """
    words = given.words
    if not words or words[0] != "run":
        raise BadOption(f"the submitted arguments are {' '.join(words)!r}; allowed: `run` and its arguments")
    for name in OF_SUBMISSION:
        os.environ.pop(name, None)
    return _run(_parser().parse_args(words), pod)


class _Parser(argparse.ArgumentParser):
    """A parser that raises BadOption for wrong arguments."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise BadOption(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="barnabas jobs", description="Maintenance of topics as Spark jobs.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="run a job; exit code 3 means that the job ran to its end and its result lists problems"
    )
    run.add_argument("job", choices=sorted(JOBS), metavar="NAME", help=f"the job, one of {', '.join(JOBS)}")
    run.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the job; `barnabas jobs list` shows all options",
    )
    run.add_argument(
        "--master",
        type=_master,
        default="local[*]",
        help="the URL of Spark's master; the default local[*] runs the job on this machine",
    )
    run.add_argument("--conf", type=_conf, action="append", default=[], metavar="spark.NAME=VALUE")
    run.add_argument(
        OPTION, type=Path, metavar="FILE", help="a file of Kafka's client properties: security.protocol, sasl.*, ssl.*"
    )
    run.set_defaults(command=_run)
    listed = commands.add_parser("list", help="list the jobs and their options")
    listed.set_defaults(command=_list)
    fetch = commands.add_parser("fetch-jars", help="fetch Spark's Kafka connector before the first run")
    fetch.add_argument("--s3", action="store_true", help="also fetch the jars for archives in S3 (700 MB)")
    fetch.set_defaults(command=_fetch_jars)
    executor = commands.add_parser("executor", help="the command of Spark's executor pods; do not run it yourself")
    executor.set_defaults(command=_executor)
    driver = commands.add_parser("driver", help="the command of spark-submit's driver pods; do not run it yourself")
    for name in ("--properties-file", "--class"):
        driver.add_argument(name, help="an argument that spark-submit passes; the value is ignored")
    driver.add_argument("file", help="an argument that spark-submit passes; the value is ignored")
    driver.add_argument("words", nargs=argparse.REMAINDER, help="the arguments of `barnabas jobs`")
    driver.set_defaults(command=_driver)
    for each in (run, fetch):
        each.add_argument(
            "--jars", type=Path, default=default_folder(), metavar="FOLDER", help="the folder for the connector's jars"
        )
    return parser


def _master(text: str) -> str:
    if not MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"the master is {text!r}; allowed: local[*], local[N], spark://HOST:PORT, k8s://URL or yarn"
        )
    return text


def _conf(text: str) -> tuple[str, str]:
    found = CONF.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: spark.NAME=VALUE")
    return found[1], found[2]
