"""Where the API server is and who this process is to it: by a pod's service account, or by a kubeconfig file."""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoAccess(Exception):
    """What this process was given to reach an API server with is not there or does not do; the message says what."""


class Access(NamedTuple):
    """`read_token` is called before each request, since tokens change; it gives None where a certificate speaks."""

    server: str
    tls: ssl.SSLContext | None
    read_token: Callable[[], str | None]


def find_access(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """KUBECONFIG where it is set, else the service account of the pod. Raises NoAccess."""
    kubeconfig = environment.get("KUBECONFIG")
    if kubeconfig:
        return _by_kubeconfig(Path(kubeconfig))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccess("KUBERNETES_SERVICE_HOST is not set, so this is no pod; KUBECONFIG must name a kubeconfig file")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        tls = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
    except OSError as error:
        raise NoAccess(f"{service_account}/ca.crt: {error}") from error
    return Access(server, tls, _token_file(service_account / "token"))


def _token_file(path: Path) -> Callable[[], str]:
    """The kubelet writes a new token long before the old one ends. Raises NoAccess when it is called."""

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NoAccess(f"{path}: {error}") from error

    return read


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False


class _User(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: object = None
    auth_provider: object = None


class _Context(msgspec.Struct):
    cluster: str
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


def _by_kubeconfig(path: Path) -> Access:
    try:
        config = msgspec.convert(YAML(typ="safe").load(path), _Kubeconfig)
    except (OSError, YAMLError, msgspec.ValidationError) as error:
        raise NoAccess(f"KUBECONFIG={path}: {error}") from error
    try:
        context = {each.name: each.context for each in config.contexts}[config.current_context]
        cluster = {each.name: each.cluster for each in config.clusters}[context.cluster]
        user = {each.name: each.user for each in config.users}.get(context.user, _User())
    except KeyError as error:
        raise NoAccess(f"KUBECONFIG={path}: current-context: there is no {error}") from error
    if user.exec is not None or user.auth_provider is not None:
        raise NoAccess(f"KUBECONFIG={path}: users[{context.user}]: must have a certificate, a token or a tokenFile")
    try:
        tls = _tls(path.parent, cluster, user) if cluster.server.startswith("https://") else None
    except (OSError, binascii.Error) as error:
        raise NoAccess(f"KUBECONFIG={path}: certificates: {error}") from error
    if user.token_file is not None:
        return Access(cluster.server, tls, _token_file(path.parent / user.token_file))
    return Access(cluster.server, tls, lambda: user.token)


def _tls(directory: Path, cluster: _Cluster, user: _User) -> ssl.SSLContext:
    authority = _pem(directory, cluster.certificate_authority, cluster.certificate_authority_data)
    context = ssl.create_default_context(cadata=authority)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _pem(directory, user.client_certificate, user.client_certificate_data)
    key = _pem(directory, user.client_key, user.client_key_data)
    if certificate is not None and key is not None:
        with tempfile.NamedTemporaryFile("w", prefix="barnabas-") as file:  # ssl reads keys from nowhere else.
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(directory: Path, name: str | None, data: str | None) -> str | None:
    """Data goes before a file, as in kubectl; a relative path is one from the kubeconfig's directory."""
    if data:
        return base64.b64decode(data).decode()
    return (directory / os.path.expanduser(name)).read_text() if name else None
