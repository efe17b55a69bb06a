"""The options of the command."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_console.registry.client import InvalidRegistry, RegistrySettings, registry_settings
from barnabas_core.web_files import WebFiles, contradictions
from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import CommandConfig, connection_of, mechanism_of, properties_of
from barnabas_kafka.security import IN_CLEAR, Credentials, SecurityFileError
from barnabas_lag.app.options import Listener, listener, number
from barnabas_web.visitors import FileRefused, Protection

DEFAULT_LISTENER: Final = "127.0.0.1:9080"
INTERVAL_S: Final = 10.0
NAMES: Final = WebFiles("--server.tls.cert-file", "--server.tls.key-file", "")
PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
MASK: Final = re.compile(r"[^\s,]{1,200}")
VISITOR, CONSOLE = "visitor", "console"


class Options(NamedTuple):
    """The settings of one console, which shows one cluster."""

    bootstrap: str
    config: Path | None
    """The file of client properties; None for connections in clear."""
    own: Credentials | None
    """The console's own account, with which it looks for all visitors; None if visitors log in with theirs."""
    mechanism: str
    """The SASL mechanism that the login page offers first."""
    listener: Listener
    protection: Protection
    prefix: str
    interval_s: float
    masked: frozenset[str]
    write: bool
    registry: RegistrySettings | None


def parse(arguments: Sequence[str]) -> Options:
    """Parse the options. If one is wrong, print it, its value and what is allowed, and end the process with code 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    protection = _protection(parser, given)
    try:
        protocol = connection_of(given.command_config)["security_protocol"] if given.command_config else "PLAINTEXT"
        mechanism = mechanism_of(given.command_config) if given.command_config else ""
        own = _own(given.account or (VISITOR if protocol.startswith("SASL_") else CONSOLE), protocol, given)
        registry = registry_settings(properties_of(given.command_config)) if given.command_config else None
    except (SecurityFileError, InvalidRegistry, argparse.ArgumentTypeError) as error:
        parser.error(f"argument --command-config: {error}")
    return Options(
        given.bootstrap,
        given.command_config,
        own,
        mechanism,
        given.listen_address,
        protection,
        given.path_prefix,
        given.interval,
        frozenset(given.mask),
        given.write,
        registry,
    )


def _own(account: str, protocol: str, given: argparse.Namespace) -> Credentials | None:
    if account == CONSOLE:
        own: Credentials = CommandConfig(given.command_config) if given.command_config else IN_CLEAR
        own.settings()
        return own
    if not protocol.startswith("SASL_"):
        where = given.command_config or "no file"
        raise argparse.ArgumentTypeError(
            f"{where} has security.protocol={protocol}, by which visitors cannot log in; --account=visitor needs "
            f"SASL_PLAINTEXT or SASL_SSL"
        )
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas console",
        description="Serve pages that show a Kafka cluster with the rights of each visitor.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--bootstrap",
        type=addresses,
        required=True,
        metavar="HOST:PORT",
        help="the addresses of one or more brokers, separated by commas",
    )
    add(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a file with properties of Kafka clients; visitors need no password in it; default: PLAINTEXT",
    )
    add(
        "--account",
        choices=(VISITOR, CONSOLE),
        help="whose rights count: each visitor logs in with a Kafka user (visitor), or all look with the credentials "
        "in the file (console); default: visitor with SASL, else console",
    )
    _add_pages(parser)
    return parser


def _add_pages(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--listen-address",
        type=listener,
        default=listener(DEFAULT_LISTENER),
        metavar="HOST:PORT",
        help=f"the address of the pages; port 0 means any free port; default: {DEFAULT_LISTENER}",
    )
    add("--path-prefix", type=_prefix, default="", metavar="PATH", help="the path below which all pages are")
    add(
        "--interval",
        type=number(float, 1.0, 3600.0),
        default=INTERVAL_S,
        metavar="SECONDS",
        help="the seconds between two rounds of requests for one user; default: %(default)s",
    )
    add(
        "--mask",
        type=_mask,
        action="append",
        default=[],
        metavar="FIELD",
        help="a field of JSON messages whose values are never shown; may be given several times",
    )
    add("--write", action="store_true", help="allow actions, with the rights of the visitor; default: read only")
    _add_tls(parser)


def _add_tls(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("cert-file", "a file with the certificate of the pages and its chain"),
        ("key-file", "a file with its private key"),
    ):
        parser.add_argument(
            f"--server.tls.{option}",
            dest=option.replace("-", "_"),
            default="",
            metavar="FILE",
            help=f"{text}, as PEM",
        )


def _prefix(text: str) -> str:
    if not PREFIX.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a path such as /console, without a slash at its end")
    return text


def _mask(text: str) -> str:
    if not MASK.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: the name of one field, without spaces and commas")
    return text


def _protection(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Protection:
    files = WebFiles(given.cert_file, given.key_file, "")
    for option, value, allowed in contradictions(files, NAMES):
        parser.error(f"{option}={value}: {allowed}")
    try:
        return Protection(files, NAMES)
    except FileRefused as error:
        parser.error(str(error))
