"""Read the access to the API server from a kubeconfig file, outside of pods."""

import base64
import binascii
import os
import ssl
import tempfile
from pathlib import Path

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from barnabas_kube.access import Access, NoAccess, token_file


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


def read_kubeconfig(path: Path) -> Access:
    """Return the API server of the current context, and its user's credentials: a certificate or a token.

    Raise NoAccess if the file, its context or its certificates are invalid.
    """
    try:
        config = msgspec.convert(YAML(typ="safe").load(path), _Kubeconfig)
    except (OSError, YAMLError, msgspec.ValidationError) as error:
        raise NoAccess(f"KUBECONFIG={path}: {error}") from error
    try:
        context = {each.name: each.context for each in config.contexts}[config.current_context]
        cluster = {each.name: each.cluster for each in config.clusters}[context.cluster]
        user = {each.name: each.user for each in config.users}.get(context.user, _User())
    except KeyError as error:
        raise NoAccess(f"KUBECONFIG={path}: current-context refers to {error}, which is not in the file") from error
    if user.exec is not None or user.auth_provider is not None:
        raise NoAccess(f"KUBECONFIG={path}: the user {context.user} must have a certificate, a token or a tokenFile")
    try:
        tls = _tls(path.parent, cluster, user) if cluster.server.startswith("https://") else None
    except (OSError, binascii.Error) as error:
        raise NoAccess(f"KUBECONFIG={path}: the certificates or keys cannot be read: {error}") from error
    server = cluster.server.rstrip("/")
    if user.token_file is not None:
        return Access(server, tls, token_file(path.parent / user.token_file))
    return Access(server, tls, lambda: user.token)


def _tls(directory: Path, cluster: _Cluster, user: _User) -> ssl.SSLContext:
    authority = _pem(directory, cluster.certificate_authority, cluster.certificate_authority_data)
    context = ssl.create_default_context(cadata=authority)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _pem(directory, user.client_certificate, user.client_certificate_data)
    key = _pem(directory, user.client_key, user.client_key_data)
    if certificate is not None and key is not None:
        with tempfile.NamedTemporaryFile("w", prefix="barnabas-") as file:  # The ssl module reads keys only from files.
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(directory: Path, name: str | None, data: str | None) -> str | None:
    """Return PEM text; `data` takes precedence over a file, and paths are relative to the kubeconfig, as in kubectl."""
    if data:
        return base64.b64decode(data).decode()
    return (directory / os.path.expanduser(name)).read_text() if name else None
