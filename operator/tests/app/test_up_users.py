"""`barnabas up` over manifests of users: clients connect with the written files while the manifests exist."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas_operator.app.child_process import read_status
from barnabas_operator.resources.kind import READY, condition_of
from barnabas_operator.resources.user import UserStatus
from harness.deadline import wait_for
from harness.running_up import CLUSTER, RunningUp, topic_manifest

SECURED = """\
      tls: true
      authentication: {type: scram-sha-512}
  authorization: {}
"""
LOADER = """\
apiVersion: barnabas.dev/v1alpha1
kind: User
metadata: {name: NAME}
spec:
  authentication: {type: KIND}
  authorization:
    acls: [{resource: {type: topic, name: flights}, operations: [Describe]}]
"""


def reason(up: RunningUp, name: str) -> str:
    known = read_status(up.data)
    users = known.users if known is not None else ()
    ready = next((condition_of(each.conditions, READY) for each in users if each.metadata.name == name), None)
    return ready.reason if ready is not None else ""


def topics(settings: dict[str, str]) -> set[str]:
    return set(AdminClient({**settings, "log_level": 0}).list_topics(timeout=5).topics)


def settings_of(file: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in file.read_text().splitlines())
    return {name: value for name, _, value in pairs}


def test_a_declared_user_connects_with_its_rights_until_its_manifest_is_removed(up: RunningUp) -> None:
    listener = "      port: 0\n"
    up.write("cluster.yaml", CLUSTER.replace(listener, listener + SECURED))
    up.write("flights.yaml", topic_manifest("flights", "partitions: 1"))
    up.write("hidden.yaml", topic_manifest("hidden", "partitions: 1"))
    up.write("loader.yaml", LOADER.replace("NAME", "loader").replace("KIND", "scram-sha-512"))
    up.write("reader.yaml", LOADER.replace("NAME", "reader").replace("KIND", "tls"))
    up.write("admin.yaml", LOADER.replace("NAME", "admin").replace("KIND", "scram-sha-512"))
    up.start()
    wait_for(lambda: {reason(up, name) for name in ("loader", "reader")}, lambda found: found == {"Reconciled"})
    assert reason(up, "admin") == "ResourceConflict", "the administrator of the Cluster has this name"
    folder = up.data / "users" / "loader"
    assert all(each.stat().st_mode & 0o077 == 0 for each in (up.data / "users").rglob("*"))
    settings = settings_of(folder / "kcat.conf")
    wait_for(lambda: topics(settings), lambda found: found == {"flights"})
    assert (up.data / "users" / "reader" / "user.p12").stat().st_size > 0
    (up.manifests / "loader.yaml").unlink()
    wait_for(lambda: not folder.exists())
    with pytest.raises(KafkaException):
        topics(settings)


def test_a_rotated_password_overlaps_with_the_previous_one_until_it_is_revoked(up: RunningUp) -> None:
    listener = "      port: 0\n"
    up.write("cluster.yaml", CLUSTER.replace(listener, listener + SECURED))
    up.write("flights.yaml", topic_manifest("flights", "partitions: 1"))
    kind = "scram-sha-512, password: {overlapSeconds: 3600}"

    def declare(**annotations: str) -> None:
        named = ", ".join(f"barnabas.dev/{name}-password: {value}" for name, value in annotations.items())
        meta = f"{{name: loader, annotations: {{{named}}}}}"
        up.write("loader.yaml", LOADER.replace("{name: NAME}", meta).replace("KIND", kind))

    def status() -> UserStatus:
        known = read_status(up.data)
        return next((each.status for each in known.users if each.status), UserStatus()) if known else UserStatus()

    declare()
    up.start()
    file = up.data / "users" / "loader" / "kcat.conf"
    wait_for(lambda: reason(up, "loader"), lambda found: found == "Reconciled")
    old = settings_of(file)
    declare(rotate="one")
    assert wait_for(lambda: status().previous_password_until) is not None
    new = settings_of(file)
    assert old["sasl.password"] != new["sasl.password"]
    assert topics(old) == topics(new) == {"flights"}
    declare(rotate="one", revoke="one")
    wait_for(lambda: status().revoked, lambda found: found == "one")
    assert status().previous_password_until is None
    assert topics(new) == {"flights"}
    with pytest.raises(KafkaException):
        topics(old)
