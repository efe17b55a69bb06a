"""`barnabas abort-transaction`: abort a transaction that is open in a partition, but unknown to its coordinator."""

import argparse
from collections.abc import Sequence
from typing import Any

from kafka.errors import BrokerResponseError
from rich.console import Console

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.app.cluster_options import EXIT_FAILED, add_cluster_options, on_cluster
from barnabas_operator.kafka.transactions import OpenTransaction, abort, open_in


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code: 0, or 1 if the transaction was not aborted."""
    options = _parser().parse_args(arguments)
    return on_cluster(options, lambda out, client: _abort(out, client, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas abort-transaction", description=__doc__)
    add_cluster_options(parser)
    parser.add_argument("--topic", required=True, help="the topic that has the open transaction")
    parser.add_argument("--partition", type=int, required=True, help="the partition that has the open transaction")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--start-offset",
        type=int,
        help="the start offset of the transaction, as `barnabas status --transactions` shows it",
    )
    which.add_argument("--producer-id", type=int, help="the id of the producer that began the transaction")
    return parser


def _abort(out: Console, client: Any, options: argparse.Namespace) -> int:
    """Abort the transaction that the options select, and return the exit code of the command.

    A transaction with a transactional id is refused, because its coordinator may still commit it in other partitions.
    """
    place = TopicPartition(options.topic, options.partition)
    try:
        found = open_in(client, place)
        wanted = [each for each in found if options.start_offset in (None, each.start_offset)]
        wanted = [each for each in wanted if options.producer_id in (None, each.producer_id)]
        if not wanted:
            out.print(_nothing(place, found), markup=False)
            return EXIT_FAILED
        if wanted[0].transactional_id is not None:
            out.print(_known(place, wanted[0]), markup=False)
            return EXIT_FAILED
        abort(client, wanted[0])
    except BrokerResponseError as error:
        out.print(f"{place}: the brokers refused to abort the transaction: {error}", markup=False)
        return EXIT_FAILED
    out.print(f"{place}: aborted the transaction {_text(wanted[0])}", markup=False)
    return 0


def _nothing(place: TopicPartition, found: Sequence[OpenTransaction]) -> str:
    if not found:
        return f"{place} has no open transaction"
    return f"{place} has no transaction that matches the options; open transactions: {'; '.join(map(_text, found))}"


def _known(place: TopicPartition, wanted: OpenTransaction) -> str:
    return (
        f"{place}: the transaction {_text(wanted)} has the transactional id {wanted.transactional_id}; "
        "the coordinator ends the transaction after its timeout. "
        "To end the transaction now, start a producer with this transactional id"
    )


def _text(each: OpenTransaction) -> str:
    return f"from offset {each.start_offset} of producer {each.producer_id} with epoch {each.producer_epoch}"
