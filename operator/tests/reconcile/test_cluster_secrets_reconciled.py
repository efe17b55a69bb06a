"""The Secrets of a secured Cluster over an API server in memory."""

import datetime as dt
from base64 import b64encode
from typing import Any

import pytest

from barnabas_operator.certificates import Authority
from barnabas_operator.kube.api import path_of
from harness.worker_world import World, claim_of, of_broker, resource

ASKS: dict[str, Any] = {
    "listeners": [{"name": "clients", "tls": True, "authentication": {"type": "scram-sha-512"}}],
    "authorization": {},
    "deletionPolicy": "Delete",
}
KEPT = {"one-cluster-ca", "one-cluster-ca-cert", "one-clients-ca", "one-clients-ca-cert"}
OF_USERS = {f"one-credentials-{number}" for number in range(8)}
MADE = {*KEPT, *OF_USERS, "one-broker-certificates", "one-operator", "one-admin", "one-maintenance"}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def secrets(world: World) -> set[str]:
    return {each["metadata"]["name"] for each in world.api.of_kind("Secret")}


async def test_all_secrets_are_created_before_the_brokers_and_the_brokers_get_the_password(here: World) -> None:
    here.api.put(resource("Cluster", "one", **ASKS))
    await here.round()
    written = [each.rpartition("/")[2] for each in here.api.writes if "?dryRun" not in each]
    assert max(map(written.index, MADE)) < written.index("one-broker", written.index("one-admin"))
    assert secrets(here) == MADE
    here.worker.object_event(of_broker(0), is_gone=False)  # Brokers are asked again at once.
    await here.round()
    assert here.brokers.passwords == {"admin": "a" * 32}


async def test_secrets_are_created_even_while_brokers_wait_for_an_address(here: World) -> None:
    outside = {"name": "outside", "type": "loadbalancer", "tls": True, "authentication": {"type": "tls"}}
    here.api.put(resource("Cluster", "one", **{**ASKS, "listeners": [outside]}))
    await here.round()
    assert here.api.found("StatefulSet", "one-broker") is None
    assert secrets(here) >= KEPT | {"one-broker-certificates"}


REFUSED: dict[str, dict[str, Any]] = {
    "a disk that is removed": {"storage": {"volumes": [{"id": 1}]}},
    "a config that brokers refuse": {"config": {"num.partitions": 0}},
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
async def test_certificates_are_issued_again_whatever_else_of_a_cluster_is_refused(
    refused: dict[str, Any], here: World
) -> None:
    here.api.put(claim_of(0, 0))
    here.api.put(resource("Cluster", "one", **ASKS))
    await here.round()
    body = resource("Cluster", "one", **ASKS, **refused)
    here.api.put({**body, "metadata": {**body["metadata"], "generation": 2}})
    del here.api.objects[path_of("Secret", "air", "one-broker-certificates")]
    await here.round()
    assert here.said("Cluster", "one")[:2] in (("False", "NotSupported"), ("False", "InvalidConfig"))
    assert "one-broker-certificates" in secrets(here)


async def test_the_status_lists_certificates_of_the_cluster_and_the_first_user_one_to_expire(here: World) -> None:
    here.api.put(resource("Cluster", "one", **ASKS))
    for name, end in (("alice", "2099-01-01T00:00:00Z"), ("bob", "2098-01-01T00:00:00Z")):
        shown = {"name": name, "notAfter": end, "renewalTime": end}
        user = resource("User", name, cluster="one", authentication={"type": "tls"}, pause=True)
        here.api.put({**user, "status": {"certificate": shown}})
    await here.round()
    found = (here.api.found("Cluster", "one") or {})["status"]["certificates"]
    own = ["one-cluster-ca", "one-clients-ca", "one-broker-certificates", "one-operator", "one-maintenance"]
    assert [each["name"] for each in found] == [*own, "bob"]
    assert all(each["renewalTime"] < each["notAfter"] for each in found[:-1])


async def test_a_secret_of_another_owner_is_left_unchanged_and_reported_as_a_conflict(here: World) -> None:
    here.api.put({"kind": "Secret", "metadata": {"name": "one-operator"}, "data": {"a": "Yg=="}})
    here.api.put(resource("Cluster", "one", **ASKS))
    await here.round()
    status, reason, message = here.said("Cluster", "one")
    assert (status, reason) == ("False", "ResourceConflict")
    assert "Secret one-operator already exists and belongs to no Cluster; delete or rename the object" in message
    assert (here.api.found("Secret", "one-operator") or {})["data"] == {"a": "Yg=="}
    assert here.api.found("StatefulSet", "one-broker") is None


async def test_a_cluster_waits_for_its_provided_authority_and_never_writes_it(here: World) -> None:
    asks = {**ASKS, "clusterCa": {"generateCertificateAuthority": False}}
    here.api.put(resource("Cluster", "one", **asks))
    await here.round()
    _, reason, message = here.said("Cluster", "one")
    assert reason == "BrokenSecret"
    assert "spec.clusterCa.generateCertificateAuthority is false, but Secret one-cluster-ca is missing" in message
    made = Authority.create("mine", dt.datetime.now(dt.UTC)).pem
    data = {"tls.key": encoded(made.key), "tls.crt": encoded(made.certificate)}
    here.api.put({"kind": "Secret", "metadata": {"name": "one-cluster-ca"}, "data": data})
    await here.round()
    assert here.api.found("StatefulSet", "one-broker") is not None
    assert (here.api.found("Secret", "one-cluster-ca") or {})["data"] == data
    assert (here.api.found("Secret", "one-cluster-ca-cert") or {})["data"]["ca.crt"] == data["tls.crt"]
    ends = (here.api.found("Cluster", "one") or {})["status"]["certificates"]
    assert [each["name"] for each in ends if "renewalTime" not in each] == ["one-cluster-ca"]


async def test_lag_exporter_and_runs_have_only_their_acls_as_long_as_they_are_declared(
    here: World,
) -> None:
    exporter, runs = (f"CN=one-{name},O=barnabas.dev" for name in ("lag-exporter", "maintenance"))

    def told(user: str) -> set[str]:
        return {str(acl) for acl in here.brokers.users().of(user).acls}

    here.api.put(resource("Cluster", "one", lagExporter={}, **ASKS))
    await here.round()
    here.worker.object_event(of_broker(0), is_gone=False)
    await here.round()
    assert told(exporter) == {
        "allow DESCRIBE on topic * (literal) from *",
        "allow DESCRIBE on group * (literal) from *",
        "allow DESCRIBE_CONFIGS on cluster kafka-cluster (literal) from *",
    }
    assert "allow READ on topic * (literal) from *" in told(runs)
    assert "one-lag-exporter" in secrets(here)
    body = resource("Cluster", "one", **ASKS)
    here.api.put({**body, "metadata": {**body["metadata"], "generation": 2}})
    await here.round()
    assert (told(exporter), "one-lag-exporter" in secrets(here)) == (set(), False)
    assert told(runs)


async def test_secrets_that_outlive_a_cluster_are_deleted_with_its_disks(here: World) -> None:
    here.api.put(resource("Cluster", "one", **ASKS))
    await here.round()
    owners = {each["metadata"]["name"]: each["metadata"].get("ownerReferences") for each in here.api.of_kind("Secret")}
    assert {name for name, found in owners.items() if not found} == KEPT | OF_USERS
    here.api.put(resource("Cluster", "one", goes=True, held=True, **ASKS))
    await here.round()
    assert not secrets(here) & (KEPT | OF_USERS)
