"""`barnabas accept-loss`: elect the replica with the longest log in partitions that have lost records."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from barnabas_operator.app.cluster_options import EXIT_FAILED, add_cluster_options, on_cluster, table
from barnabas_operator.kafka.step_requests import PartitionKey, accept, lost_partitions


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code.

    It is 0, or 1 if no cluster answers, a loss was not accepted, or the named topic has no loss.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.partition is not None and options.topic is None:
        parser.error("--partition needs --topic")
    return on_cluster(options, lambda out, client: _accept(out, client, options.topic, options.partition))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas accept-loss", description=__doc__)
    add_cluster_options(parser)
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
