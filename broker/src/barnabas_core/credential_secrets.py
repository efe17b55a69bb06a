"""The Kubernetes Secrets that hold a cluster's SCRAM credentials: the operator makes them, the brokers fill them.

Their number is fixed, so a rule of RBAC can name each of them.
"""

from collections.abc import Sequence
from typing import Final

SHARDS: Final = 8
"""A Secret has at most 1 MiB, so eight hold about 15,000 credentials of SCRAM-SHA-512."""


def credential_secrets(cluster: str) -> Sequence[str]:
    """Return the names of all Secrets of a cluster."""
    return [f"{cluster}-credentials-{shard}" for shard in range(SHARDS)]
