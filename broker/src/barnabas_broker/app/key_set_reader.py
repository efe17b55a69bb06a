"""The blocking read of a JWK set from a file or URL, limited in size and without redirects; run it in a thread."""

import ssl
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from barnabas_broker.app.tls_contexts import Stores
from barnabas_broker.security.sasl.key_set import KEY_SET_BYTES_MAX, InvalidKeySet, TokenKey, parse_key_set
from barnabas_broker.security.sasl.token_keys import KeysUnavailable
from barnabas_core.config.listeners import ListenerSecurity, SecurityProtocol


def read_key_set(url: str, context: ssl.SSLContext, timeout_s: float) -> tuple[TokenKey, ...]:
    """Return the keys at a URL; connecting and reading take at most `timeout_s` each. Raises KeysUnavailable."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as opened:
                return parse_key_set(opened.read(KEY_SET_BYTES_MAX + 1))
        opener = build_opener(HTTPSHandler(context=context), _NoRedirects)
        request = Request(url, headers={"Accept": "application/json"})
        with opener.open(request, timeout=timeout_s) as answer:
            return parse_key_set(_whole(answer, time.monotonic() + timeout_s))
    except (OSError, ValueError, HTTPException, InvalidKeySet) as error:
        raise KeysUnavailable(f"the token keys cannot be read: {error}") from error


def _whole(answer: HTTPResponse, deadline_s: float) -> bytes:
    """Return the body of the response, at most KEY_SET_BYTES_MAX + 1 bytes. Raises TimeoutError at the deadline."""
    data = b""
    while len(data) <= KEY_SET_BYTES_MAX and (piece := answer.read1(KEY_SET_BYTES_MAX + 1 - len(data))):
        data += piece
        if time.monotonic() > deadline_s:
            raise TimeoutError("the response was not complete before the timeout")
    return data


def trusting(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context with the truststore of the options, or with the system's certificate authorities."""
    trusted = Stores(ListenerSecurity("", SecurityProtocol.SSL, options)).truststore()
    return ssl.create_default_context(cadata=trusted)


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirects, because only the URL in the settings may provide keys."""

    def redirect_request(self, *_: object) -> None:
        """Refuse a redirect: return None, so that `urllib` raises HTTPError for the response."""
