"""The defaults for listeners and authorization of a Cluster on Kubernetes.

The CRD cannot contain these defaults, because they depend on `spec.insecure`.
"""

from typing import Final

from barnabas_operator.resources.json_types import Json

OPEN_LISTENER: Final[Json] = {"name": "plain"}
SECURED_LISTENER: Final[Json] = {"name": "secure", "tls": True, "authentication": {"type": "scram-sha-512"}}
"""The default listener of a secured Cluster. Like `OPEN_LISTENER`, it is internal and has port 9092."""


def with_security(body: Json) -> Json:
    """Return the spec with its defaults. Without `listeners`, the default is one listener that depends on `insecure`.

    The default listener is plain if `insecure` is true. Otherwise, the default listener is secured, and authorization
    is turned on. `insecure` becomes true if an unsecured Cluster was created before this field existed.
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
    """True if `insecure` is true in the result of `with_security`, but not in the stored spec."""
    return bool(with_security(body).get("insecure")) and not (body.get("spec") or {}).get("insecure")


def _is_from_before(body: Json) -> bool:
    """True if an operator that did not know `spec.insecure` wrote the status, which then lacks the field `security`."""
    status: Json = body.get("status") or {}
    return bool(status) and "security" not in status


def is_open(listener: Json) -> bool:
    """True if the listener has neither TLS nor authentication."""
    return not listener.get("tls") and not listener.get("authentication")
