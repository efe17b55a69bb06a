"""`barnabas accept-loss`: elect the replica with the longest log in partitions that have lost records."""

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_operator.app import data_dir as data_dirs
from barnabas_operator.app.output import console, table
from barnabas_operator.app.status import EXIT_FAILED, connected, known_bootstrap
from barnabas_operator.kafka.losses import PartitionKey, accept, lost_partitions


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code.

    It is 0, or 1 if no cluster answers, a loss was not accepted, or the named topic has no loss.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.partition is not None and options.topic is None:
        parser.error("--partition needs --topic")
    # kafka-python also raises the errors that it logs, so the log would only repeat the errors.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    out = console()
    bootstrap = options.bootstrap or known_bootstrap(options.data_dir)[0]
    try:
        with connected(bootstrap, options.command_config) as admin, reachable():
            return _accept(out, admin.client, options.topic, options.partition)
    except ClusterUnreachable as error:
        out.print(f"no broker answers at {bootstrap}: {error}", markup=False)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas accept-loss", description=__doc__)
    parser.add_argument(
        "--bootstrap",
        type=addresses,
        metavar="HOST:PORT",
        help="the bootstrap address; default: the cluster of `barnabas up`, or else localhost:9092",
    )
    add_command_config(parser)
    parser.add_argument("--data-dir", type=Path, default=data_dirs.DEFAULT, help="default: %(default)s")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", help="accept the loss of records in the partitions of this topic")
    which.add_argument("--all", action="store_true", help="accept the loss of records in the partitions of all topics")
    parser.add_argument("--partition", type=int, help="accept the loss of records only in this partition of the topic")
    return parser


def _accept(out: Console, client: Any, topic: str | None, partition: int | None) -> int:
    topics = sorted(client.list_topics()) if topic is None else [topic]
    lost = lost_partitions(client, topics)
    if partition is not None:
        lost = {key: text for key, text in lost.items() if key[1] == partition}
    if not lost:
        where = "any topic" if topic is None else topic if partition is None else f"{topic}-{partition}"
        out.print(f"nothing to accept: no partition is offline because of lost records in {where}", markup=False)
        return EXIT_FAILED if topic is not None else 0
    return _report(out, lost, accept(client, lost))


def _report(out: Console, lost: Mapping[PartitionKey, str], failures: Mapping[PartitionKey, str]) -> int:
    rows = [(key[0], str(key[1]), text, failures.get(key, "accepted")) for key, text in sorted(lost.items())]
    out.print(table("Lost records", ("TOPIC", "PARTITION>", "BEFORE", "OUTCOME"), rows))
    return EXIT_FAILED if failures else 0
