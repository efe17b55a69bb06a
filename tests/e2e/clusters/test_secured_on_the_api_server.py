"""The Secrets and rights of a secured Cluster, on a real API server."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas_core.conventions import credential_secrets
from barnabas_operator.certificates import Authority, Pem, certificates_in, has_issued
from barnabas_operator.planning.conditions import utc_moment
from barnabas_operator.resources.kind import Json
from e2e.world import World
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

LISTENERS = [{"name": "clients", "tls": True, "authentication": {"type": "tls"}}]


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    namespace = f"secured-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    found = World(defined_api_server, namespace, broker, tmp_path)
    with closing(found.operator()):
        yield found
        defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def secret(world: World, name: str) -> dict[str, str]:
    data = json.loads(world.kubectl("get", "secret", name, "-ojson"))["data"]
    return {key: b64decode(value).decode(errors="replace") for key, value in data.items()}


def deployment(world: World, name: str) -> Json:
    found: Json = json.loads(world.kubectl("get", "deployment", name, "--ignore-not-found", "-ojson") or "{}")
    return found


def test_a_secured_cluster_gets_its_secrets_and_brokers_may_access_only_their_own(world: World) -> None:
    world.apply_cluster("one", listeners=LISTENERS, authorization={}, lagExporter={})
    wait_for(lambda: world.stateful_set("one-broker"), seconds_max=PATIENCE_S)
    authority, certificate = secret(world, "one-clients-ca"), secret(world, "one-clients-ca-cert")
    signer = Authority(Pem(authority["ca.key"], certificate["ca.crt"]), utc_moment(0))
    (shown,) = certificates_in(secret(world, "one-admin")["user.crt"])
    assert has_issued(signer.certificate, shown)
    exporter = wait_for(lambda: deployment(world, "one-lag-exporter"))
    (volume,) = exporter["spec"]["template"]["spec"]["volumes"]
    for name in (volume["secret"]["secretName"], "one-maintenance"):
        assert secret(world, name).keys() == {"ca.crt", "client.pem", "client.properties"}
    account = f"--as=system:serviceaccount:{world.namespace}:one-broker"
    own, other = credential_secrets("one")[0], "one-cluster-ca"

    def may(verb: str, name: str) -> bool:
        asked = ("-n", world.namespace, "auth", "can-i", verb, f"secrets/{name}", account)
        return world.plane.kubectl.ask(*asked).stdout == "yes\n"

    wait_for(lambda: may("patch", own))
    assert [may(verb, name) for verb, name in (("get", own), ("get", other), ("create", own))] == [True, False, False]


def cluster(world: World) -> Json:
    found: Json = json.loads(world.kubectl("get", "cluster", "one", "-ojson"))
    return found


def test_an_open_cluster_of_an_earlier_operator_is_marked_insecure_without_a_restart(world: World) -> None:
    world.apply_cluster("one", listeners=[{"name": "plain"}])
    wait_for(lambda: cluster(world).get("status", {}).get("security"), seconds_max=PATIENCE_S)

    def brokers() -> tuple[str, int]:
        meta = (world.plane.requests.get("StatefulSet", world.namespace, "one-broker") or {})["metadata"]
        return meta["uid"], meta["generation"]

    before = brokers()
    world.kubectl("patch", "cluster", "one", "--type=merge", '-p={"spec":{"insecure":false}}')
    wait_for(lambda: world.ready("one", "Cluster")[1], lambda said: "or set spec.insecure: true" in said, PATIENCE_S)
    # An earlier operator did not write this field.
    world.kubectl("patch", "cluster", "one", "--type=merge", "--subresource=status", '-p={"status":{"security":null}}')
    wait_for(lambda: cluster(world)["spec"]["insecure"], seconds_max=PATIENCE_S)
    wait_for(lambda: [each[1] for each in world.events("Cluster", "one")], lambda found: "MarkedInsecure" in found)
    assert brokers() == before


def test_an_annotation_renews_an_authority_and_is_then_removed(world: World) -> None:
    world.apply_cluster("one", listeners=LISTENERS, authorization={})
    wait_for(lambda: world.stateful_set("one-broker"), seconds_max=PATIENCE_S)
    (former,) = certificates_in(secret(world, "one-cluster-ca")["ca.crt"])
    world.kubectl("annotate", "secret", "one-cluster-ca", "barnabas.dev/force-renew=true")

    def marks() -> dict[str, str]:
        meta = json.loads(world.kubectl("get", "secret", "one-cluster-ca", "-ojson"))["metadata"]
        found: dict[str, str] = meta.get("annotations", {})
        return found

    wait_for(marks, lambda found: not found, PATIENCE_S)
    (latest,) = certificates_in(secret(world, "one-cluster-ca")["ca.crt"])
    assert latest != former
    assert latest.public_key() == former.public_key()


def test_a_foreign_secret_in_the_place_of_an_authority_is_not_changed(world: World) -> None:
    world.kubectl("create", "secret", "generic", "one-cluster-ca", "--from-literal=ca.key=a")
    world.apply_cluster("one", listeners=LISTENERS, authorization={})

    def said() -> list[str]:
        found = json.loads(world.kubectl("get", "cluster", "one", "-ojson"))
        return [each.get("message", "") for each in found.get("status", {}).get("conditions", ())]

    why = "Secret one-cluster-ca already exists and belongs to no Cluster; delete or rename the object"
    wait_for(said, lambda messages: any(why in each for each in messages), PATIENCE_S)
    assert secret(world, "one-cluster-ca") == {"ca.key": "a"}
    assert not world.stateful_set("one-broker")
