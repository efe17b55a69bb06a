"""The files that protect a web port, and the check that their settings do not contradict each other."""

from collections.abc import Iterator
from typing import NamedTuple


class WebFiles(NamedTuple):
    """The paths of the files that protect a web port, or the names of the settings for these paths.

    A path is empty if the file is not used.
    """

    certificate: str = ""
    """The file with the certificate and its chain, as PEM."""
    key: str = ""
    """The file with the private key, as PEM; if empty, the key is in the file of the certificate."""
    token: str = ""
    """The file with the bearer token that all pages except those for probes require."""


def contradictions(files: WebFiles, names: WebFiles) -> Iterator[tuple[str, str, str]]:
    """Yield an error for a key or token without a certificate: the setting's name, its value, and what is allowed."""
    if files.certificate:
        return
    if files.key:
        yield names.key, files.key, f"must be set together with {names.certificate}"
    if files.token:
        why = "because without TLS the token would be sent in clear"
        yield names.token, files.token, f"must be set together with {names.certificate}, {why}"
