"""The options of the command, with the names of kafka_exporter where it has such an option.

The options for TLS and SASL have kafka_exporter's names, except that the password is in a file. A password as an option
would appear in lists of processes.
"""

import argparse
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_core.conventions import WebFiles, contradictions
from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import add_command_config
from barnabas_kafka.security import IN_CLEAR, MECHANISMS, Credentials, Sasl, Security, SecurityFileError, Tls
from barnabas_lag.evaluation.lags import Filter
from barnabas_lag.exposition import Limits
from barnabas_lag.kafka.groups import Filters
from barnabas_web.visitors import FileRefused, Protection


def add_security(parser: argparse.ArgumentParser) -> None:
    """Add the options for TLS and SASL to the parser."""
    parser.add_argument("--tls.enabled", dest="tls", action="store_true", help="connect to the brokers with TLS")
    for name, help_text in (
        (
            "ca-file",
            "a file with the CA certificates for the brokers' certificates; default: those of the system",
        ),
        ("cert-file", "a file with the exporter's client certificate, for brokers that require one"),
        ("key-file", "a file with the private key of the client certificate"),
    ):
        parser.add_argument(
            f"--tls.{name}",
            dest=f"tls_{name.replace('-', '_')}",
            type=Path,
            metavar="FILE",
            help=f"{help_text}; in PEM format",
        )
    parser.add_argument("--sasl.enabled", dest="sasl", action="store_true", help="connect to the brokers with SASL")
    parser.add_argument("--sasl.username", dest="sasl_username", metavar="NAME", help="the name of the user for SASL")
    parser.add_argument(
        "--sasl.password-file",
        dest="sasl_password_file",
        type=Path,
        metavar="FILE",
        help="a file with the password of the user",
    )
    parser.add_argument(
        "--sasl.mechanism",
        dest="sasl_mechanism",
        type=mechanism,
        default=MECHANISMS[0],
        metavar="NAME",
        help=f"the SASL mechanism, one of {', '.join(MECHANISMS)}; default: %(default)s",
    )


def security_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Credentials:
    """Return the credentials of the options.

    End the process with exit code 2 if the options contradict each other, or their files cannot be used.
    """
    _check(parser, given)
    if given.command_config != IN_CLEAR:
        if given.tls or given.sasl:
            parser.error(
                "--command-config must not be combined with --tls.enabled or --sasl.enabled; set TLS and "
                "SASL in the file"
            )
        found: Credentials = given.command_config
        return found
    tls = Tls(given.tls_ca_file, given.tls_cert_file, given.tls_key_file) if given.tls else None
    sasl = Sasl(given.sasl_mechanism, given.sasl_username, given.sasl_password_file) if given.sasl else None
    security = Security(tls, sasl)
    try:
        security.settings()
    except SecurityFileError as error:
        parser.error(str(error))
    if tls is not None:
        _check_files(parser, tls)
    return security


def _check_files(parser: argparse.ArgumentParser, tls: Tls) -> None:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        parser.error(
            f"--tls.ca-file is {tls.ca_file}, which cannot be used: {error.strerror}; name a file with "
            f"certificates in PEM format"
        )
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except OSError as error:
            files = f"--tls.cert-file is {tls.cert_file} and --tls.key-file is {tls.key_file}"
            parser.error(
                f"{files}, which cannot be used: {error.strerror}; name files with a certificate and its "
                f"key in PEM format"
            )


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    files = {"--tls.ca-file": given.tls_ca_file, "--tls.cert-file": given.tls_cert_file}
    for option, value in {**files, "--tls.key-file": given.tls_key_file}.items():
        if value is not None and not given.tls:
            parser.error(f"{option} is {value}, but --tls.enabled is missing; add --tls.enabled")
    if (given.tls_cert_file is None) != (given.tls_key_file is None):
        parser.error("one of --tls.cert-file and --tls.key-file is missing; give both or neither")
    for option, text in (("--sasl.username", given.sasl_username), ("--sasl.password-file", given.sasl_password_file)):
        if given.sasl and text is None:
            parser.error(f"--sasl.enabled needs {option}")
        if text is not None and not given.sasl:
            parser.error(f"{option} is {text}, but --sasl.enabled is missing; add --sasl.enabled")


def mechanism(text: str) -> str:
    """Return Kafka's name of a SASL mechanism. Raises argparse.ArgumentTypeError.

    `text` is the name that Kafka or kafka_exporter gives the mechanism.
    """
    found = next((each for each in MECHANISMS if _plain(each) == _plain(text)), None)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(MECHANISMS)}")
    return found


def _plain(name: str) -> str:
    return name.replace("-", "").lower()


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
        protection=protection_of(parser, given, NAMES),
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
    add_web(parser, NAMES)
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


def add_web(parser: argparse.ArgumentParser, names: WebFiles) -> None:
    """Add the options for the pages' certificate and token to the parser, except those without a name."""
    for name, dest, help_text in (
        (
            names.certificate,
            "web_certificate",
            "a PEM file with a certificate and its chain, with which the pages are served over TLS",
        ),
        (
            names.key,
            "web_key",
            f"a PEM file with the private key of the certificate; default: the file of {names.certificate}",
        ),
        (names.token, "web_token", "a file with the bearer token that /metrics requires; only allowed with TLS"),
    ):
        if name:
            parser.add_argument(name, dest=dest, default="", metavar="FILE", help=help_text)


def protection_of(parser: argparse.ArgumentParser, given: argparse.Namespace, names: WebFiles) -> Protection:
    """Return the TLS context and the token of the HTTP port, by the options of `add_web`.

    End the process with exit code 2 if the options contradict each other, or their files cannot be used.
    """
    files = WebFiles(given.web_certificate, given.web_key, vars(given).get("web_token", ""))
    for option, value, allowed in contradictions(files, names):
        parser.error(f"{option}={value}: {allowed}")
    try:
        return Protection(files, names)
    except FileRefused as error:
        parser.error(str(error))
