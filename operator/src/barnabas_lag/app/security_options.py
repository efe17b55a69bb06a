"""The options for TLS and SASL, with kafka_exporter's names, except that the password is in a file.

A password as an option would appear in lists of processes.
"""

import argparse
import ssl
from pathlib import Path

from barnabas_kafka.security import IN_CLEAR, MECHANISMS, Credentials, Sasl, Security, SecurityFileError, Tls


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
