"""The command's options: names of kafka_exporter where it has them."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_lag.app.security_options import add_security, security_of
from barnabas_lag.evaluation.filters import Filter
from barnabas_lag.exposition.limits import Limits
from barnabas_lag.kafka.reading import Filters

INTERVAL_S: Final = 15.0
INTERVAL_MIN_S: Final = 1.0
INTERVAL_MAX_S: Final = 3_600.0
SERIES_MAX: Final = 10_000_000
DEFAULT_LISTENER: Final = "0.0.0.0:9308"
LISTENER: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:]*)):(?P<port>[0-9]{1,5})")
PORT_MAX: Final = 65_535


class Listener(NamedTuple):
    """The address at which the pages are served; an empty host is every address."""

    host: str
    port: int


class Options(NamedTuple):
    """The options that the command was given."""

    bootstrap: str
    interval_s: float
    listener: Listener
    filters: Filters
    limits: Limits
    security: Credentials = IN_CLEAR


def parse(arguments: Sequence[str]) -> Options:
    """Parse the options.

    If one is wrong, ends the process with 2 and a line that names the option, its value and what is allowed.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    return Options(
        bootstrap=given.bootstrap,
        interval_s=given.interval,
        listener=given.listen_address,
        filters=Filters(
            Filter(given.topic_filter, given.topic_exclude), Filter(given.group_filter, given.group_exclude)
        ),
        limits=Limits(given.max_topic_partitions, given.max_group_partitions, given.max_groups),
        security=security_of(parser, given),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas lag-exporter",
        description="How far consumer groups are behind, of any Kafka cluster, for Prometheus.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bootstrap",
        type=addresses,
        required=True,
        metavar="HOST:PORT",
        help="any brokers, with commas between",
    )
    parser.add_argument(
        "--listen-address",
        type=listener,
        default=listener(DEFAULT_LISTENER),
        metavar="HOST:PORT",
        help=f"where /metrics and /healthz are; port 0 takes a free one; default: {DEFAULT_LISTENER}",
    )
    parser.add_argument(
        "--interval",
        type=number(float, INTERVAL_MIN_S, INTERVAL_MAX_S),
        default=INTERVAL_S,
        metavar="SECONDS",
        help="from one round to the next; default: %(default)s",
    )
    add_security(parser)
    add_command_config(parser)
    _add_filters(parser)
    _add_limits(parser)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for what in ("topic", "group"):
        for option, default, help_text in (
            ("filter", ".*", f"only {what}s whose name has a match"),
            ("exclude", "^$", f"no {what} whose name has a match"),
        ):
            parser.add_argument(
                f"--{what}.{option}",
                dest=f"{what}_{option}",
                type=regex,
                default=regex(default),
                metavar="REGEX",
                help=f"{help_text}; default: {default}",
            )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for name, default, help_text in (
        ("topic-partitions", 50_000, "partitions that have series of their own, whole topics in the order of names"),
        (
            "group-partitions",
            50_000,
            "partitions of groups that have, whole groups by name, those without members last",
        ),
        ("groups", 10_000, "groups that have series, by name, those without members last"),
    ):
        allowed = number(int, 0, SERIES_MAX)
        parser.add_argument(
            f"--max-{name}", type=allowed, default=default, metavar="N", help=f"{help_text}; default: %(default)s"
        )


def regex(text: str) -> re.Pattern[str]:
    """Parse the regular expression of a filter option. Raises argparse.ArgumentTypeError."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # A number is too large, or parentheses too many.
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a regular expression of Python; {error}") from error


def listener(text: str) -> Listener:
    """`HOST:PORT`, `[IPV6]:PORT` or `:PORT`. Raises argparse.ArgumentTypeError."""
    found = LISTENER.fullmatch(text)
    if found is None or int(found["port"]) > PORT_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: HOST:PORT, [IPV6]:PORT or :PORT, the port from 0 to {PORT_MAX}"
        )
    return Listener(found["ipv6"] or found["host"], int(found["port"]))


def number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], float]:
    """A number of this kind within these bounds, both allowed."""
    word = "a whole number" if kind is int else "a number"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {word} from {low:g} to {high:.0f}")
        return value

    return read
