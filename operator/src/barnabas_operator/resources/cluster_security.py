"""The meaning of a Cluster's spec on Kubernetes where it leaves security out. Pure.

The API server cannot fill it in, because the listeners depend on `spec.insecure`. So every Cluster that is read from
the API server has the spec that `with_security` returns (`Cluster.declared_spec`).
"""

from typing import Final

from barnabas_operator.resources.json_types import Json

OPEN_LISTENER: Final[Json] = {"name": "plain"}
SECURED_LISTENER: Final[Json] = {"name": "secure", "tls": True, "authentication": {"type": "scram-sha-512"}}
"""Both are internal, at port 9092."""


def with_security(body: Json) -> Json:
    """Return the spec with the listeners and rights that it leaves out.

    `insecure` is true in an open Cluster from before that field, so that it keeps its listeners.
    """
    spec: Json = body.get("spec") or {}
    if _is_from_before(body) and any(map(is_open, spec.get("listeners", (OPEN_LISTENER,)))):
        spec = {**spec, "insecure": True}
    if "listeners" in spec:
        return spec
    if spec.get("insecure"):
        return {**spec, "listeners": [OPEN_LISTENER]}
    return {"authorization": {}, **spec, "listeners": [SECURED_LISTENER]}


def is_made_insecure(body: Json) -> bool:
    """True if `with_security` makes the Cluster insecure, and the stored spec does not say so yet."""
    return bool(with_security(body).get("insecure")) and not (body.get("spec") or {}).get("insecure")


def _is_from_before(body: Json) -> bool:
    """True if the last status is by an operator that did not know `spec.insecure`; every later one has `security`."""
    status: Json = body.get("status") or {}
    return bool(status) and "security" not in status


def is_open(listener: Json) -> bool:
    """True if anybody may come, in clear."""
    return not listener.get("tls") and not listener.get("authentication")
