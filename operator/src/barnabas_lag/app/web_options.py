"""The options that protect the pages, with kafka_exporter's names for TLS."""

import argparse
from typing import Final

from barnabas_core.web_files import WebFiles, contradictions
from barnabas_web.protection import Protection
from barnabas_web.watched import FileRefused

NAMES: Final = WebFiles("--server.tls.cert-file", "--server.tls.key-file", "--server.token-file")


def add_web(parser: argparse.ArgumentParser) -> None:
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


def protection_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Protection:
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
