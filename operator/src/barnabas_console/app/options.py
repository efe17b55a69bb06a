"""The options of the command."""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_console.kubernetes.client import without_identity
from barnabas_console.registry.client import settings_of
from barnabas_core.conventions import WebFiles
from barnabas_kafka.addresses import addresses
from barnabas_kafka.command_config import CommandConfig, connection_of, mechanism_of, properties_of
from barnabas_kafka.security import IN_CLEAR, Credentials, SecurityFileError
from barnabas_kube.access import Access, NoAccess
from barnabas_kube.discovery import find_access
from barnabas_lag.app.options import Listener, add_web, listener, number, protection_of
from barnabas_registry.schemas import InvalidRegistry, RegistrySettings
from barnabas_web.visitors import Protection

DEFAULT_LISTENER: Final = "127.0.0.1:9080"
INTERVAL_S: Final = 10.0
NAMES: Final = WebFiles("--server.tls.cert-file", "--server.tls.key-file", "")
PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
CLUSTER: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,61}")
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUFFIX: Final = ".properties"
BOOTSTRAP: Final = "bootstrap.servers"
CLUSTERS_MAX: Final = 20
MASK: Final = re.compile(r"[^\s,]{1,200}")
VISITOR, CONSOLE = "visitor", "console"


class Options(NamedTuple):
    """The settings of the pages of one cluster, which are all below `prefix`."""

    name: str
    """The name of the cluster in addresses; empty if the console shows only this one."""
    prefix: str
    bootstrap: str
    config: Path | None
    """The file of client properties; None for connections in clear."""
    own: Credentials | None
    """The console's own account, with which it looks for all visitors; None if visitors log in with theirs."""
    mechanism: str
    """The SASL mechanism that the login page offers first."""
    registry: RegistrySettings | None
    interval_s: float
    masked: frozenset[str]
    write: bool


class KubernetesOptions(NamedTuple):
    """The namespace whose resources are shown, and the access to the API server that has them."""

    namespace: str
    access: Access
    is_visitors: bool
    """True if each visitor gives a token; the access has no identity then."""


class ProcessOptions(NamedTuple):
    """The settings of the process, and of each cluster that it shows."""

    listener: Listener
    protection: Protection
    prefix: str
    clusters: tuple[Options, ...]
    kubernetes: KubernetesOptions | None

    @property
    def has_list(self) -> bool:
        """True if the first page is a list of clusters."""
        return self.clusters[0].name != ""


def parse(arguments: Sequence[str]) -> ProcessOptions:
    """Parse the options. If one is wrong, print it, its value and what is allowed, and end the process with code 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    protection = protection_of(parser, given, NAMES)
    try:
        clusters = _clusters(given)
        kubernetes = _kubernetes(given, clusters)
    except (NoAccess, SecurityFileError, InvalidRegistry, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    return ProcessOptions(given.listen_address, protection, given.path_prefix, clusters, kubernetes)


def _kubernetes(given: argparse.Namespace, clusters: Sequence[Options]) -> KubernetesOptions | None:
    if given.kubernetes is None:
        return None
    is_visitors = given.kubernetes_account == VISITOR
    if is_visitors and any(each.own is not None for each in clusters):
        text = "needs clusters at which visitors log in, because others share one session and its token"
        raise argparse.ArgumentTypeError(f"--kubernetes-account={VISITOR} {text}")
    access = find_access(os.environ)
    return KubernetesOptions(given.kubernetes, without_identity(access) if is_visitors else access, is_visitors)


def _clusters(given: argparse.Namespace) -> tuple[Options, ...]:
    if given.clusters is None:
        return (_cluster("", given.bootstrap, given.command_config, given),)
    if given.command_config is not None:
        raise argparse.ArgumentTypeError("--command-config is one cluster's; allowed with --bootstrap")
    files = {each.name.removesuffix(SUFFIX): each for each in _files(given.clusters) if each.name.endswith(SUFFIX)}
    if not 1 <= len(files) <= CLUSTERS_MAX:
        allowed = f"a folder with 1 to {CLUSTERS_MAX} files NAME{SUFFIX}"
        raise argparse.ArgumentTypeError(f"--clusters={given.clusters} has {len(files)} of them; allowed: {allowed}")
    return tuple(_cluster(name, _bootstrap(name, file), file, given) for name, file in sorted(files.items()))


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"--clusters={folder}: {error.strerror}; allowed: a folder") from error


def _bootstrap(name: str, file: Path) -> str:
    if not CLUSTER.fullmatch(name):
        allowed = f"lower-case letters, digits, dots and hyphens before {SUFFIX}"
        raise argparse.ArgumentTypeError(f"--clusters has the file {file.name!r}; allowed: {allowed}")
    try:
        return addresses(properties_of(file).get(BOOTSTRAP, ""))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{file}: {BOOTSTRAP}={error}") from error


def _cluster(name: str, bootstrap: str, config: Path | None, given: argparse.Namespace) -> Options:
    try:
        protocol = connection_of(config)["security_protocol"] if config else "PLAINTEXT"
        return Options(
            name=name,
            prefix=f"{given.path_prefix}/clusters/{name}" if name else given.path_prefix,
            bootstrap=bootstrap,
            config=config,
            own=_own(given.account or (VISITOR if protocol.startswith("SASL_") else CONSOLE), protocol, config),
            mechanism=mechanism_of(config) if config else "",
            registry=settings_of(properties_of(config)) if config else None,
            interval_s=given.interval,
            masked=frozenset(given.mask),
            write=given.write,
        )
    except InvalidRegistry as error:
        raise InvalidRegistry(f"{config}: {error}") from error


def _own(account: str, protocol: str, config: Path | None) -> Credentials | None:
    if account == CONSOLE:
        own: Credentials = CommandConfig(config) if config else IN_CLEAR
        own.settings()
        return own
    if not protocol.startswith("SASL_"):
        where = config or "no file"
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
    shown = parser.add_mutually_exclusive_group(required=True)
    shown.add_argument(
        "--bootstrap",
        type=addresses,
        metavar="HOST:PORT",
        help="the addresses of one or more brokers, separated by commas",
    )
    shown.add_argument(
        "--clusters",
        type=Path,
        metavar="FOLDER",
        help=f"several clusters: a folder with a file NAME{SUFFIX} for each, which has {BOOTSTRAP} and what "
        "--command-config has",
    )
    add = parser.add_argument
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
        help="a field of JSON keys and messages whose values are never shown; may be given several times",
    )
    add("--write", action="store_true", help="allow actions, with the rights of the visitor; default: read only")
    add(
        "--kubernetes",
        type=_namespace,
        metavar="NAMESPACE",
        help="show the MaintenanceJobs of a namespace, how its Clusters roll, and the manifests of its Topics and "
        "ConsumerGroups, which the console reads by KUBECONFIG or as a pod",
    )
    add(
        "--kubernetes-account",
        choices=(CONSOLE, VISITOR),
        default=CONSOLE,
        help="whose rights count there: those of the console, whose ServiceAccount or kubeconfig all visitors look "
        "with, or those of each visitor, who gives a token; default: %(default)s",
    )
    add_web(parser, NAMES)


def _prefix(text: str) -> str:
    if not PREFIX.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a path such as /console, without a slash at its end")
    return text


def _namespace(text: str) -> str:
    if not NAMESPACE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: lower-case letters, digits and hyphens")
    return text


def _mask(text: str) -> str:
    if not MASK.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: the name of one field, without spaces and commas")
    return text
