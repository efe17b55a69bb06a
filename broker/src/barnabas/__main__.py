"""The `barnabas` command: a table of subcommands, each imported only when called, so that a broker starts fast."""

import importlib
import importlib.metadata
import os
import signal
import sys
from typing import Final, NamedTuple, NoReturn

EXIT_USAGE: Final = 2
EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Command(NamedTuple):
    """A subcommand: the module whose `main(arguments) -> exit code` runs it, its extra, and a line for the usage text.

    The extra installs what the module needs.
    """

    module: str
    extra: str
    summary: str


COMMANDS: Final = {
    "broker": Command(
        "barnabas_broker.app.main", "broker", "run one broker: barnabas broker server.properties [--override k=v]"
    ),
    "up": Command(
        "barnabas_operator.app.up", "local", "run the cluster and topics that the manifests of a directory declare"
    ),
    "convert": Command(
        "barnabas_operator.app.convert", "local", "print manifests for Strimzi as manifests for Barnabas"
    ),
    "operator": Command("barnabas_operator.app.operator", "operator", "run the Kubernetes operator (in its image)"),
    "accept-loss": Command(
        "barnabas_operator.app.accept_loss", "operator", "let partitions whose records are lost go on without them"
    ),
    "abort-transaction": Command(
        "barnabas_operator.app.abort_transaction", "operator", "end a transaction that hangs, in one partition"
    ),
    "restore-metadata": Command(
        "barnabas_broker.app.restore_metadata", "broker", "write topics that the metadata has lost from brokers' logs"
    ),
    "forget-topic": Command(
        "barnabas_broker.app.forget_topic", "broker", "delete the logs of a topic that the metadata has lost"
    ),
    "lag-exporter": Command(
        "barnabas_lag.app.main", "operator", "tell Prometheus how far groups are behind, of any Kafka cluster"
    ),
    "jobs": Command(
        "barnabas_jobs.app.main", "jobs", "archive, restore and check topics with Spark: barnabas jobs list"
    ),
    "start-maintenance": Command(
        "barnabas_operator.app.start_maintenance",
        "operator",
        "start a run of a Cluster's maintenance (its CronJobs do)",
    ),
    "status": Command(
        "barnabas_operator.app.status", "operator", "print topics, partitions, groups and lag of a cluster"
    ),
}


def usage() -> str:
    """The text for `barnabas --help`."""
    lines = [f"  {name:<19}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: barnabas COMMAND ...", "       barnabas --version", "", *lines])


def main() -> int:
    """Run the subcommand that the first argument names; return 2 if there is none such."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"barnabas {importlib.metadata.version('barnabas')}")
        return 0
    if arguments[:1] in (["--help"], ["-h"]):
        print(usage())
        return 0
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print(f"barnabas: {arguments[0]!r} is no command\n" if arguments else "", usage(), sep="", file=sys.stderr)
        return EXIT_USAGE
    # Until the command has its own handler: the kernel gives the first process of a container none.
    signal.signal(signal.SIGTERM, lambda *_: end_at_once(arguments[0]))
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        print(not_here(arguments[0], command.extra, error), file=sys.stderr)
        return EXIT_USAGE
    return int(module.main(arguments[1:]))


def end_at_once(name: str) -> NoReturn:
    """End the process past all that is half imported: nothing has begun that would have to be ended."""
    try:
        os.write(sys.stderr.fileno(), f"barnabas {name}: SIGTERM came\n".encode())
    finally:  # The output may be closed: the exit code must be right all the same.
        os._exit(EXIT_TERMINATED)


def not_here(name: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return the message that a command's parts are not installed, as in the image of another one."""
    image = "" if extra in ("local", "jobs") else f", and is in the {extra}'s image"
    return f"barnabas {name}: {error}; what it needs comes with `pip install 'barnabas[{extra}]'`{image}"


if __name__ == "__main__":
    sys.exit(main())
