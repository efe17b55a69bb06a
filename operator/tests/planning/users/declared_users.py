"""Resources for tests of Users."""

from typing import Any

import msgspec

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.user import User


def user(name: str = "alice", kind: str = "scram-sha-512", status: object = None, **spec: Any) -> User:
    """Return a User; `spec` is as in a manifest."""
    body = {
        "metadata": {"name": name, "namespace": "air", "uid": f"uid-{name}", "generation": 1},
        "spec": {"authentication": {"type": kind}, **spec},
        "status": status,
    }
    return msgspec.convert(body, User)


def cluster(**spec: Any) -> Cluster:
    """Return a Cluster; `spec` is as in a manifest."""
    return msgspec.convert({"metadata": {"name": "one", "namespace": "air"}, "spec": spec}, Cluster)


def rule(kind: str, *operations: str, **more: Any) -> dict[str, Any]:
    """Return an ACL about `flights`."""
    return {"resource": {"type": kind, "name": "flights"}, "operations": operations, **more}
