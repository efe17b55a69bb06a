"""The options of the command, with the names of kafka_exporter where it has such an option."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas_core.web_files import WebFiles, contradictions
from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_lag.app.security_options import add_security, security_of
from barnabas_lag.evaluation.filters import Filter
from barnabas_lag.exposition.limits import Limits
from barnabas_lag.kafka.reading import Filters
from barnabas_web.protection import Protection
from barnabas_web.watched import FileRefused

INTERVAL_S: Final = 15.0
INTERVAL_MIN_S: Final = 1.0
INTERVAL_MAX_S: Final = 3_600.0
SERIES_MAX: Final = 10_000_000
DEFAULT_LISTENER: Final = ":9308"
LISTENER: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:]*)):(?P<port>[0-9]{1,5})")
PORT_MAX: Final = 65_535
NAMES: Final = WebFiles("--server.tls.cert-file", "--server.tls.key-file", "--server.token-file")
"""The options that protect the pages, with kafka_exporter's names for TLS."""


class Listener(NamedTuple):
    """The address on which /metrics and /healthz are served; an empty host means all addresses."""

    host: str
    port: int


class Options(NamedTuple):
    """The options of the command."""

    bootstrap: str
    interval_s: float
    listener: Listener
    filters: Filters
    limits: Limits
    protection: Protection
    security: Credentials = IN_CLEAR


def parse(arguments: Sequence[str]) -> Options:
    """Parse the options.

    If one is wrong, print the option, its value and what is allowed, and end the process with exit code 2.
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
        protection=_protection_of(parser, given),
        security=security_of(parser, given),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas lag-exporter",
        description="Export the lag of consumer groups in any Kafka cluster to Prometheus.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bootstrap",
        type=addresses,
        required=True,
        metavar="HOST:PORT",
        help="the addresses of one or more brokers, separated by commas",
    )
    parser.add_argument(
        "--listen-address",
        type=listener,
        default=listener(DEFAULT_LISTENER),
        metavar="HOST:PORT",
        help=f"the address on which /metrics and /healthz are served; port 0 means any free port; default: "
        f"{DEFAULT_LISTENER}",
    )
    parser.add_argument(
        "--interval",
        type=number(float, INTERVAL_MIN_S, INTERVAL_MAX_S),
        default=INTERVAL_S,
        metavar="SECONDS",
        help="the seconds between the starts of two rounds of requests to the brokers; default: %(default)s",
    )
    _add_web(parser)
    add_security(parser)
    add_command_config(parser)
    _add_filters(parser)
    _add_limits(parser)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for what in ("topic", "group"):
        for option, default, help_text in (
            ("filter", ".*", f"export only {what}s whose names match the regular expression"),
            ("exclude", "^$", f"leave out {what}s whose names match the regular expression"),
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
        (
            "topic-partitions",
            50_000,
            "export series for at most N partitions, in order of topic names; a topic that does not fit is skipped",
        ),
        (
            "group-partitions",
            50_000,
            (
                "export series for at most N partitions of groups, groups with members first; a group that does not fit"
                " is skipped"
            ),
        ),
        ("groups", 10_000, "export series for at most N groups, in order of their names, groups with members first"),
    ):
        allowed = number(int, 0, SERIES_MAX)
        parser.add_argument(
            f"--max-{name}", type=allowed, default=default, metavar="N", help=f"{help_text}; default: %(default)s"
        )


def regex(text: str) -> re.Pattern[str]:
    """Parse the regular expression of a filter option. Raises argparse.ArgumentTypeError."""
    try:
        return re.compile(text)
    # Python raises OverflowError for a large number, and RecursionError for many parentheses.
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a regular expression of Python; {error}") from error


def listener(text: str) -> Listener:
    """Parse `HOST:PORT`, `[IPV6]:PORT` or `:PORT`. Raises argparse.ArgumentTypeError."""
    found = LISTENER.fullmatch(text)
    if found is None or int(found["port"]) > PORT_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: HOST:PORT, [IPV6]:PORT or :PORT, with a port from 0 to {PORT_MAX}"
        )
    return Listener(found["ipv6"] or found["host"], int(found["port"]))


def number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], float]:
    """Return a parser for a number of the type `kind` from `low` to `high`."""
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


def _add_web(parser: argparse.ArgumentParser) -> None:
    """Add the options for the pages' certificate and token to the parser."""
    for name, dest, help_text in (
        (
            NAMES.certificate,
            "web_certificate",
            "a PEM file with a certificate and its chain, with which the pages are served over TLS",
        ),
        (
            NAMES.key,
            "web_key",
            f"a PEM file with the private key of the certificate; default: the file of {NAMES.certificate}",
        ),
        (NAMES.token, "web_token", "a file with the bearer token that /metrics requires; only allowed with TLS"),
    ):
        parser.add_argument(name, dest=dest, default="", metavar="FILE", help=help_text)


def _protection_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Protection:
    """Return the TLS context and the token of the exporter's HTTP port.

    End the process with exit code 2 if the options contradict each other, or their files cannot be used.
    """
    files = WebFiles(given.web_certificate, given.web_key, given.web_token)
    for option, value, allowed in contradictions(files, NAMES):
        parser.error(f"{option}={value}: {allowed}")
    try:
        return Protection(files, NAMES)
    except FileRefused as error:
        parser.error(str(error))
