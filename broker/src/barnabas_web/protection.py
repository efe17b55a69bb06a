"""The certificate and the bearer token of a web port; both are read again when their files change."""

import hmac
import re
import ssl
from functools import partial
from typing import Final

from barnabas_core.config.cipher_suites import STRONG
from barnabas_core.web_files import WebFiles
from barnabas_web.watched import FILE_BYTES_MAX, FileRefused, Watched, content_of_file

_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""The form of a token in RFC 6750; other tokens cannot be sent in a header unchanged."""
_NO_TOKEN: Final = "must hold one token of letters, digits and -._~+/, such as the output of `openssl rand -hex 32`"
_BEGINS: Final = "-----BEGIN "


class Protection:
    """The TLS context and the token of a web port; without files the port has neither."""

    def __init__(self, files: WebFiles = WebFiles(), names: WebFiles = WebFiles()) -> None:  # noqa: B008  # It is constant.
        """Read the files that protect the port. Raises FileRefused if a file cannot be used.

        Error messages take the name of each file's setting from `names`.
        """
        self.names = names
        self._tls: Watched[ssl.SSLContext] | None = None
        self._token: Watched[bytes] | None = None
        if files.certificate:
            paths = sorted({files.certificate, files.key or files.certificate})
            self._tls = Watched("certificate", paths, partial(_context, files, names))
        if files.token:
            self._token = Watched("token", [files.token], partial(_token, files, names))

    def __bool__(self) -> bool:
        return self._tls is not None

    @property
    def scheme(self) -> str:
        """The scheme of the port's URLs, `https` or `http`."""
        return "https" if self else "http"

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context for the next handshake; None without TLS."""
        return None if self._tls is None else self._tls.current

    def admits(self, authorization: bytes) -> bool:
        """True if the port has no token, or if the value of the header Authorization contains the right token."""
        if self._token is None:
            return True
        scheme, _, given = authorization.strip().partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token.current)

    def refresh(self) -> None:
        """Read changed files again; if they cannot be used, log the error, and keep their earlier content."""
        for each in (self._tls, self._token):
            if each is not None:
                each.refresh()


def _context(files: WebFiles, names: WebFiles) -> ssl.SSLContext:
    key = files.key or files.certificate
    key_name = names.key if files.key else names.certificate
    if f"{_BEGINS}CERTIFICATE-----" not in _pem(files.certificate, names.certificate):
        raise _refused(names.certificate, files.certificate, "must hold a certificate and its chain, as PEM")
    pem = _pem(key, key_name)
    if "PRIVATE KEY-----" not in pem or "ENCRYPTED" in pem:
        raise _refused(key_name, key, "must hold a private key without a password, as PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(STRONG)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(files.certificate, key, password="")
    except OSError as error:  # ssl.SSLError is a subclass of OSError.
        allowed = f"must hold a certificate that can be used with the private key in {key}, as PEM: {error}"
        raise _refused(names.certificate, files.certificate, allowed) from None
    return context


def _token(files: WebFiles, names: WebFiles) -> bytes:
    token = _content(files.token, names.token).strip()
    if _TOKEN.fullmatch(token) is None:
        raise _refused(names.token, files.token, f"{'is empty; ' if not token else ''}{_NO_TOKEN}")
    return token


def _pem(location: str, name: str) -> str:
    return _content(location, name).decode("ascii", "replace")


def _content(location: str, name: str) -> bytes:
    try:
        content = content_of_file(location)
    except OSError as error:
        raise _refused(name, location, f"must be a file that can be read: {error.strerror}") from None
    if content is None or len(content) > FILE_BYTES_MAX:
        raise _refused(name, location, f"must be a regular file of at most {FILE_BYTES_MAX} bytes")
    return content


def _refused(name: str, value: str, allowed: str) -> FileRefused:
    return FileRefused(f"{name}={value}: {allowed}")
