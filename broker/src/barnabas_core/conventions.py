"""Names that operator and brokers must agree on.

They are the Secrets with a cluster's credentials, the feature with the format of the metadata, and the files of a web
port.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SHARDS: Final = 8
"""The number of Secrets with SCRAM credentials, fixed so that an RBAC rule can name each of them.

A Secret has at most 1 MiB, so eight hold about 15,000 credentials of SCRAM-SHA-512.
"""


def credential_secrets(cluster: str) -> Sequence[str]:
    """Return the names of all credential Secrets of a cluster; the operator creates them, and the brokers fill them."""
    return [f"{cluster}-credentials-{shard}" for shard in range(SHARDS)]


METADATA_LEVEL: Final = "barnabas.metadata.version"
"""The name of the feature in Kafka's protocol. The level of the feature is the format of the stored metadata.

At level 1 each topic is one stored document. Level 2 splits large topics into several documents. Level 3 adds
transactions, level 4 groups of the consumer protocol, and level 5 share groups.
"""
METADATA_LEVEL_MIN: Final = 1
METADATA_LEVEL_MAX: Final = 5


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
