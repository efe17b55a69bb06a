"""What stands between a manifest and the API server's store, and how it is taken away for a while."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from harness.deadline import wait_for
from local_kubernetes.kubectl import Kubectl

SECONDS_MAX: Final = 60.0
WEBHOOKS: Final = "validatingwebhookconfigurations"
WRITTEN_BY_THE_SERVER: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


def without_rules(schema: Any) -> None:
    """Takes every CEL rule away."""
    if isinstance(schema, dict):
        schema.pop("x-kubernetes-validations", None)
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        without_rules(each)


@contextmanager
def rules_off(kubectl: Kubectl, definition: str, is_open: Callable[[], bool]) -> Iterator[None]:
    """While inside, a resource's definition has no CEL rules; `is_open` sees whether that is so already."""
    before = _read(kubectl, "crd", definition)
    after = json.loads(json.dumps(before))
    without_rules(after)
    kubectl("replace", "-f-", stdin=json.dumps(after))
    try:
        wait_for(is_open, seconds_max=SECONDS_MAX)
        yield
    finally:
        kubectl("replace", "-f-", stdin=json.dumps(before))
        wait_for(lambda: not is_open(), seconds_max=SECONDS_MAX)


@contextmanager
def webhooks_off(kubectl: Kubectl, is_open: Callable[[], bool]) -> Iterator[None]:
    """While inside, the API server asks nobody; `is_open` sees whether that is so already.

    They come back as helm's, or it would refuse to upgrade what another has written.
    """
    names = kubectl("get", WEBHOOKS, "-o=name").split()
    before = [_read(kubectl, *name.split("/")) for name in names]
    kubectl("delete", *names)
    try:
        wait_for(is_open, seconds_max=SECONDS_MAX)
        yield
    finally:
        manifests = "\n---\n".join(map(json.dumps, before))
        kubectl("apply", "--server-side", "--field-manager=helm", "-f-", stdin=manifests)
        wait_for(lambda: not is_open(), seconds_max=SECONDS_MAX)


def _read(kubectl: Kubectl, kind: str, name: str) -> Any:
    """As it can be written again."""
    found = json.loads(kubectl("get", kind, name, "-o=json"))
    for field in WRITTEN_BY_THE_SERVER:
        found["metadata"].pop(field, None)
    return found
