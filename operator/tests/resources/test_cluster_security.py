"""The security of a Cluster on Kubernetes, from the fields of its spec and their defaults."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.kind import JsonObject, is_made_insecure
from barnabas_operator.resources.schema_check import readable_part, resource_of
from barnabas_operator.resources.security import Authentication, Authorization

OPEN = (Listener(name="plain"),)
SECURED = (Listener(name="secure", tls=True, authentication=Authentication(type="scram-sha-512")),)
PLAIN = {"name": "plain"}
ENCRYPTED = {"name": "safe", "tls": True}
BEFORE = {"metadataVersion": 2}
SERVED = {"security": "Secured"}
CLUSTERS: Mapping[str, tuple[JsonObject, JsonObject, tuple[Listener, ...], Authorization | None, bool]] = {
    "a new one": ({}, {}, SECURED, Authorization(), False),
    "a new one with the default of the API server": ({"insecure": False}, {}, SECURED, Authorization(), False),
    "a new one with rights of its own": (
        {"authorization": {"superUsers": ["alice"]}},
        {},
        SECURED,
        Authorization(super_users=("alice",)),
        False,
    ),
    "a new one that may be open": ({"insecure": True}, {}, OPEN, None, True),
    "a new one with a listener": ({"listeners": [ENCRYPTED]}, {}, (Listener(name="safe", tls=True),), None, False),
    "a new one with an open listener": ({"listeners": [PLAIN]}, {}, OPEN, None, False),
    "one from before": ({"listeners": [PLAIN]}, BEFORE, OPEN, None, True),
    "one from before that is without listeners": ({}, BEFORE, OPEN, None, True),
    "a secured one from before": ({"listeners": [ENCRYPTED]}, BEFORE, (Listener(name="safe", tls=True),), None, False),
    "a served one that is insecure no more": ({"listeners": [PLAIN]}, SERVED, OPEN, None, False),
    "a served one": ({}, SERVED, SECURED, Authorization(), False),
}


def body_of(spec: JsonObject, status: JsonObject) -> JsonObject:
    body = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "one"}, "spec": spec}
    return {**body, "status": status} if status else body


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_secured_unless_it_is_declared_insecure_or_of_an_older_release(name: str) -> None:
    spec, status, listeners, authorization, insecure = CLUSTERS[name]
    body = body_of(spec, status)
    for found in (resource_of(Cluster, body).spec, readable_part(Cluster, body).spec):
        assert (found.listeners, found.authorization, found.insecure) == (listeners, authorization, insecure)


@pytest.mark.parametrize(
    ("spec", "status", "is_made"),
    [
        ({"listeners": [PLAIN], "insecure": False}, BEFORE, True),
        ({"listeners": [PLAIN], "insecure": True}, BEFORE, False),
        ({"listeners": [ENCRYPTED]}, BEFORE, False),
        ({"listeners": [PLAIN]}, {}, False),
        ({"listeners": [PLAIN]}, SERVED, False),
    ],
)
def test_only_an_open_cluster_of_an_older_release_is_marked_insecure(spec: Any, status: Any, is_made: bool) -> None:
    assert is_made_insecure(body_of(spec, status)) is is_made
