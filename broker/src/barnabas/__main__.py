"""The `barnabas` command: a table of subcommands, each imported only when called, so that a broker starts fast."""

import gc
import importlib
import os
import signal
import sys
from typing import Final, NamedTuple, NoReturn

EXIT_USAGE: Final = 2
EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Command(NamedTuple):
    """A subcommand: the module whose `main(arguments)` runs it, its pip extra, and its line in the usage text."""

    module: str
    extra: str
    summary: str


COMMANDS: Final = {
    "broker": Command(
        "barnabas_broker.app.main", "broker", "run one broker, as in `barnabas broker server.properties`"
    ),
    "kafka-image": Command(
        "barnabas_broker.app.kafka_image", "broker", "run one broker with the variables of Apache Kafka's image"
    ),
    "up": Command(
        "barnabas_operator.app.up", "local", "run the cluster and topics that the manifests of a directory declare"
    ),
    "convert": Command(
        "barnabas_operator.app.convert",
        "local",
        "convert manifests for Strimzi to manifests for Barnabas, and print them",
    ),
    "operator": Command(
        "barnabas_operator.app.operator",
        "operator",
        "run the Kubernetes operator; the operator's image runs this command",
    ),
    "accept-loss": Command(
        "barnabas_operator.app.accept_loss",
        "operator",
        "bring partitions online without the records that they have lost",
    ),
    "abort-transaction": Command(
        "barnabas_operator.app.abort_transaction", "operator", "abort a hanging transaction in one partition"
    ),
    "restore-metadata": Command(
        "barnabas_broker.app.restore_metadata",
        "broker",
        "restore topics from brokers' logs after the metadata has lost them",
    ),
    "forget-topic": Command(
        "barnabas_broker.app.forget_topic", "broker", "delete the logs of a topic that the metadata has lost"
    ),
    "lag-exporter": Command(
        "barnabas_lag.app.main", "operator", "export the lag of the groups of any Kafka cluster to Prometheus"
    ),
    "console": Command(
        "barnabas_console.app.main", "operator", "serve pages that show any Kafka cluster with the rights of visitors"
    ),
    "jobs": Command(
        "barnabas_jobs.app.main",
        "jobs",
        "archive, restore and check topics with Spark; `barnabas jobs list` lists the jobs",
    ),
    "start-maintenance": Command(
        "barnabas_operator.app.start_maintenance",
        "operator",
        "start one maintenance run of a Cluster; the Cluster's CronJobs use this command",
    ),
    "status": Command(
        "barnabas_operator.app.status", "operator", "print topics, partitions, groups and lag of a cluster"
    ),
    "tail": Command("barnabas_operator.app.tail", "operator", "print the records of a topic as they come"),
}


def usage() -> str:
    """Return the text for `barnabas --help`."""
    lines = [f"  {name:<19}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: barnabas COMMAND ...", "       barnabas --version", "", *lines])


def main() -> int:
    """Run the subcommand of the first argument, and return its exit code; 2 for an unknown name or missing packages."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from importlib.metadata import version  # It takes 2 MB and a tenth of a broker's start.

        print(f"barnabas {version('barnabas')}")
        return 0
    if arguments[:1] in (["--help"], ["-h"]):
        print(usage())
        return 0
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print(f"barnabas: {arguments[0]!r} is not a command\n" if arguments else "", usage(), sep="", file=sys.stderr)
        return EXIT_USAGE
    # A subcommand sets its own handler later. In a container the broker is process 1, and process 1 ignores SIGTERM
    # unless it has a handler.
    signal.signal(signal.SIGTERM, lambda *_: end_at_once(arguments[0]))
    # Imported objects stay: a collection meanwhile, or the first one after it, would visit all of them for 0.3 MB.
    gc.disable()
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        print(not_here(arguments[0], command.extra, error), file=sys.stderr)
        return EXIT_USAGE
    finally:
        gc.freeze()
        gc.enable()
    return int(module.main(arguments[1:]))


def end_at_once(name: str) -> NoReturn:
    """Report SIGTERM on stderr and exit with code 143; no subcommand runs yet, so there is nothing to clean up."""
    try:
        os.write(sys.stderr.fileno(), f"barnabas {name}: stopped by SIGTERM\n".encode())
    finally:  # The exit code must be right even if stderr is closed.
        os._exit(EXIT_TERMINATED)


def not_here(name: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return the message that the packages of a subcommand are not installed, and how to install them."""
    image = "" if extra in ("local", "jobs") else f"; the {extra}'s image contains them"
    return (
        f"barnabas {name}: {error}; `pip install 'barnabas[{extra}]'` installs the packages that the "
        f"command needs{image}"
    )


if __name__ == "__main__":
    sys.exit(main())
