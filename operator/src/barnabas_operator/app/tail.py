"""`barnabas tail TOPIC`: print the records of a topic as they come, without a consumer group."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from kafka import KafkaConsumer, TopicPartition

from barnabas_kafka.connection import ClusterUnreachable, Make, reachable
from barnabas_kafka.security import SecurityFileError
from barnabas_operator.app.cluster_options import EXIT_FAILED, Target, add_cluster_options, mute_kafka_python, target_of

POLL_MS: Final = 1000
RECORDS_A_POLL: Final = 500
SHOWN_CHARS_MAX: Final = 1000
EXIT_INTERRUPTED: Final = 130
CONNECT_TIMEOUT_MS: Final = 5000


def main(arguments: Sequence[str]) -> int:
    """Run the command until it is interrupted or `--limit` is reached, and return its exit code; 1 if it fails."""
    options = _parser().parse_args(arguments)
    mute_kafka_python()
    try:
        with reachable():
            for line in _lines(target_of(options), options.topic, options.start == "earliest", options.limit):
                print(line, flush=True)
    except (ClusterUnreachable, SecurityFileError) as error:
        print(f"barnabas tail: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas tail", description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="latest")
    parser.add_argument("--limit", type=_limit, help="end after so many records; default: go on until Ctrl-C")
    add_cluster_options(parser)
    return parser


def _limit(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}; allowed: a number of records from 1")
    return int(text)


def _lines(target: Target, topic: str, from_start: bool, limit: int | None) -> Iterator[str]:
    """Yield a line for each record. Raises ClusterUnreachable if there is no such topic."""
    consumer = cast(Make, KafkaConsumer)(
        bootstrap_servers=target.bootstrap.split(","),
        bootstrap_timeout_ms=CONNECT_TIMEOUT_MS,
        client_id="barnabas-tail",
        enable_auto_commit=False,
        auto_offset_reset="earliest" if from_start else "latest",
        allow_auto_create_topics=False,
        **target.security.settings(),
    )
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            raise ClusterUnreachable(f"there is no topic {topic!r}, or no right to describe it, at {target.bootstrap}")
        consumer.assign([TopicPartition(topic, number) for number in sorted(numbers)])
        count = 0
        while limit is None or count < limit:
            found = consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_A_POLL)
            for record in _by_time(found.values()):
                if limit is None or count < limit:
                    count += 1
                    yield line_of(record)
    finally:
        consumer.close(autocommit=False)


def _by_time(batches: Iterable[Sequence[Any]]) -> list[Any]:
    return sorted((record for batch in batches for record in batch), key=lambda each: each.timestamp)


def line_of(record: Any) -> str:
    """Return `TIME PARTITION:OFFSET KEY VALUE` of a record, without characters that would steer a terminal."""
    time = datetime.fromtimestamp(max(record.timestamp, 0) / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"{time.removesuffix('+00:00')}Z {record.partition}:{record.offset} {_shown(record.key)} {_shown(record.value)}"
    )


def _shown(data: bytes | None) -> str:
    """Return bytes as text: `-` for null, and control characters and bytes that are not UTF-8 as escapes."""
    if data is None:
        return "-"
    text = data[: SHOWN_CHARS_MAX * 4].decode(errors="backslashreplace")
    cut = text[:SHOWN_CHARS_MAX]
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)
    return f"{shown}... ({len(data):,} bytes)" if len(cut) < len(text) or len(data) > SHOWN_CHARS_MAX * 4 else shown
