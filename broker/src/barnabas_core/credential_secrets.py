"""The Kubernetes Secrets with a cluster's SCRAM credentials; the operator creates them, and the brokers fill them.

The number of Secrets is fixed, so that an RBAC rule can name each of them.
"""

from collections.abc import Sequence
from typing import Final

SHARDS: Final = 8
"""The number of Secrets. A Secret has at most 1 MiB, so eight hold about 15,000 credentials of SCRAM-SHA-512."""


def credential_secrets(cluster: str) -> Sequence[str]:
    """Return the names of all credential Secrets of a cluster."""
    return [f"{cluster}-credentials-{shard}" for shard in range(SHARDS)]
