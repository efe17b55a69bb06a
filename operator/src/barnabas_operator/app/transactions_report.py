"""The tables of `barnabas status --transactions`."""

import msgspec
from rich.console import Console
from rich.table import Table

from barnabas_operator.app.output import number, table
from barnabas_operator.kafka.transactions import OpenTransaction, TransactionReport, TransactionsReport


def transactions_json(report: TransactionsReport) -> str:
    """Return the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def print_transactions(out: Console, report: TransactionsReport, now_ms: int) -> None:
    """Print the known transactions, the open transactions in partitions, and how to abort a hanging transaction."""
    out.print(_transactions(report, now_ms) if report.transactions else "no transaction is open")
    if report.open:
        out.print()
        out.print(_open(report, now_ms))
    hanging = next((each for each in report.open if each.transactional_id is None), None)
    if hanging is not None:
        place = f"--topic {hanging.topic} --partition {hanging.partition} --start-offset {hanging.start_offset}"
        out.print(
            "a transaction without a transactional id never times out; if the producer has ended, abort the "
            "transaction with:"
        )
        out.print(f"  barnabas abort-transaction {place}", markup=False)


def _transactions(report: TransactionsReport, now_ms: int) -> Table:
    headings = ("TRANSACTIONAL ID", "STATE", "PRODUCER>", "EPOCH>", "AGE>", "TIMEOUT>", "PARTITIONS")
    return table("Transactions", headings, (_transaction_row(each, now_ms) for each in report.transactions))


def _transaction_row(each: TransactionReport, now_ms: int) -> tuple[str, ...]:
    return (
        each.transactional_id,
        each.state,
        str(each.producer_id),
        str(each.producer_epoch),
        "-" if each.started_ms is None else _seconds(now_ms - each.started_ms),
        _seconds(each.timeout_ms),
        ", ".join(f"{topic}-{partition}" for topic, partition in each.partitions) or "-",
    )


def _open(report: TransactionsReport, now_ms: int) -> Table:
    headings = (
        "TOPIC",
        "PARTITION>",
        "HELD BACK>",
        "START OFFSET>",
        "PRODUCER>",
        "EPOCH>",
        "LAST WRITE>",
        "TRANSACTIONAL ID",
    )
    return table("Held back", headings, (_open_row(each, now_ms) for each in report.open))


def _open_row(each: OpenTransaction, now_ms: int) -> tuple[str, ...]:
    return (
        each.topic,
        str(each.partition),
        number(each.held_back),
        str(each.start_offset),
        str(each.producer_id),
        str(each.producer_epoch),
        _seconds(now_ms - each.last_write_ms),
        "none: it hangs" if each.transactional_id is None else each.transactional_id,
    )


def _seconds(duration_ms: int) -> str:
    return f"{number(duration_ms // 1000)} s"
