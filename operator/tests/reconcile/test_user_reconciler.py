"""Users in the rounds of a Cluster: their Secrets, their passwords and their deletion."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.users.user_plan import SCRAM_512, UserStep
from barnabas_operator.reconcile.users.user_reconciler import PART
from harness.worker_world import World, resource

SCRAM = {"type": "scram-sha-512"}


def user(name: str = "alice", **more: Any) -> dict[str, Any]:
    return resource("User", name, **{"authentication": SCRAM, **more})


def secret(world: World, name: str = "alice") -> dict[str, str]:
    found = world.api.found("Secret", name)
    assert found is not None, f"Secret {name} is missing"
    return {key: b64decode(text).decode() for key, text in found["data"].items() if key != "user.p12"}


async def test_a_user_owns_its_secret_and_loses_its_account_when_it_is_deleted(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(user(quotas={"producerByteRate": 5, "controllerMutationRate": 5}))
    await here.round()
    assert here.said("User", "alice")[:2] == ("True", "Reconciled")
    assert secret(here)["password"] == here.brokers.passwords["alice"] == "a" * 32
    assert here.brokers.accounts["alice"].mechanisms == {SCRAM_512}
    body = here.api.found("User", "alice")
    assert body is not None
    assert (body["status"]["username"], body["status"]["secret"]) == ("alice", "alice")
    stored = here.api.found("Secret", "alice")
    assert stored is not None
    (owner,) = stored["metadata"]["ownerReferences"]
    owned_by = {name: owner[name] for name in ("kind", "name", "uid")}
    assert owned_by == {"kind": "User", "name": "alice", "uid": body["metadata"]["uid"]}, "Kubernetes deletes it"
    writes = len(here.api.writes)
    await here.round()
    assert len(here.api.writes) == writes, "nothing has changed"
    here.brokers.accounts.clear()
    await here.round()
    assert here.brokers.accounts["alice"].quotas == {"producer_byte_rate": 5.0, "controller_mutation_rate": 5.0}
    assert "DriftUndone" in [reason for reason, _ in here.api.events()]
    here.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await here.round()
    assert not here.brokers.accounts["alice"].is_there
    assert here.api.found("User", "alice") is None


async def test_another_value_of_the_annotation_rotates_the_password(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(user())
    await here.round()
    stored = here.api.found("Secret", "alice")
    body = here.api.found("User", "alice")
    assert stored is not None
    assert body is not None
    here.api.put({**stored, "data": {**stored["data"], "password": b64encode(b"old").decode()}})
    meta = {**body["metadata"], "annotations": {"barnabas.dev/rotate-password": "now"}}
    here.api.put({**body, "metadata": meta})
    await here.round()
    assert secret(here)["password"] == "a" * 32
    assert here.said("User", "alice")[0] == "True"


async def annotated(world: World, **annotations: str) -> dict[str, Any]:
    """Annotate the User `alice`, reconcile, and return the status of the User."""
    body = world.api.found("User", "alice")
    assert body is not None
    prefixed = {f"barnabas.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    known = body["metadata"].get("annotations", {})
    world.api.put({**body, "metadata": {**body["metadata"], "annotations": {**known, **prefixed}}})
    await world.round()
    status: dict[str, Any] = (world.api.found("User", "alice") or {})["status"]
    return status


async def rotated(world: World) -> dict[str, Any]:
    """Make a User whose brokers have another password than its Secret, reconcile, and return its status."""
    world.api.put(resource("Cluster", "one"))
    world.api.put(user(authentication={**SCRAM, "password": {"overlapSeconds": 3600}}))
    await world.round()
    assert world.brokers.overlaps_s["alice"] == 0, "the first password has none before it"
    body = world.api.found("User", "alice")
    assert body is not None
    salt_id = body["status"]["passwordId"].partition("-")[0]
    world.api.put({**body, "status": {**body["status"], "passwordId": f"{salt_id}-earlier"}})
    return await annotated(world)


async def test_the_status_says_until_when_the_previous_password_works_and_an_annotation_ends_it(here: World) -> None:
    status = await rotated(here)
    assert here.brokers.overlaps_s["alice"] == 3600
    until = status["previousPasswordUntil"]
    assert (await annotated(here))["previousPasswordUntil"] == until, "it stays until then"
    assert any(f"works until {until}" in message for _, message in here.api.events())
    status = await annotated(here, revoke_password="now")
    assert here.brokers.overlaps_s["alice"] == 0
    assert "previousPasswordUntil" not in status
    assert status["revoked"] == "now"
    assert "PasswordRevoked" in [reason for reason, _ in here.api.events()]


async def test_a_revocation_that_the_brokers_refuse_is_tried_again(here: World) -> None:
    until = (await rotated(here))["previousPasswordUntil"]
    here.brokers.refused_user = StepRefused(15, "no store")
    assert (await annotated(here, revoke_password="now"))["previousPasswordUntil"] == until
    here.brokers.refused_user = None
    assert (await annotated(here))["revoked"] == "now"
    assert here.brokers.overlaps_s["alice"] == 0


async def test_a_secret_of_another_owner_is_never_written(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    theirs = {"kind": "Secret", "metadata": {"name": "alice"}, "data": {"ca.key": b64encode(b"theirs").decode()}}
    here.api.put(theirs)
    here.api.put(user())
    await here.round()
    status, reason, message = here.said("User", "alice")
    assert (status, reason) == ("False", "ResourceConflict")
    assert message.startswith("Secret alice already exists and does not belong to the User")
    assert secret(here) == {"ca.key": "theirs"}
    assert not here.brokers.accounts


async def test_the_first_of_many_users_are_ready_before_work_on_the_last_begins(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    for number in range(PART + 1):
        here.api.put(user(f"user-{number:04d}"))
    apply = here.brokers.apply_to_users

    def apply_once(steps: Sequence[UserStep]) -> Any:
        if here.brokers.accounts:
            raise ClusterUnreachable("the broker has just died")
        return apply(steps)

    here.brokers.apply_to_users = apply_once  # type: ignore[method-assign]
    await here.round()
    assert here.said("User", f"user-{PART - 1:04d}")[0] == "True"
    last = here.api.found("User", f"user-{PART:04d}")
    assert last is not None
    assert "status" not in last


async def test_a_secret_created_by_an_operator_that_died_keeps_its_password(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    owner = {"kind": "User", "name": "alice", "uid": "alice"}
    meta = {"name": "alice", "ownerReferences": [owner]}
    here.api.put({"kind": "Secret", "metadata": meta, "data": {"password": b64encode(b"first").decode()}})
    here.api.put(user())
    here.api.put(user("bob"))
    reads: list[str] = []

    def note(method: str, path: str, _: object) -> None:
        reads.append(f"{method} {path}")

    here.api.refuse = note
    await here.round()
    assert secret(here)["password"] == here.brokers.passwords["alice"] == "first"
    asked = [each.rpartition("/")[2] for each in reads if each.startswith("GET") and "/secrets/" in each]
    assert "alice" in asked
    assert "bob" not in asked, "a new User has no Secret"


@pytest.mark.parametrize("name", ["operator", "broker", "lag-exporter", "maintenance"])
async def test_a_user_may_not_have_the_name_of_a_component_of_the_cluster(name: str, here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.api.put(user("mallory", username=f"CN=one-{name},O=barnabas.dev"))
    await here.round()
    _, reason, message = here.said("User", "mallory")
    assert reason == "ResourceConflict"
    assert message.startswith(f"spec.username is CN=one-{name},O=barnabas.dev")
    assert not here.brokers.accounts


async def test_a_user_reports_what_is_missing_and_is_reconciled_when_that_exists(here: World) -> None:
    ref = {"valueFrom": {"secretKeyRef": {"name": "theirs", "key": "pw"}}}
    here.api.put(resource("Cluster", "one"))
    here.api.put(user("bob", authentication={**SCRAM, "password": ref}))
    here.api.put(user("carol", authentication={"type": "tls"}))
    here.api.put(user("robert", username="bob"))
    await here.round()
    assert here.said("User", "bob")[1] == "NoPassword"
    assert here.said("User", "robert")[1] == "ResourceConflict"
    _, reason, message = here.said("User", "carol")
    assert reason == "NoAuthority"
    assert "ca.key of Secret one-clients-ca or ca.crt of Secret one-clients-ca-cert is missing" in message
    given = {"pw": b64encode(b"chosen\n").decode()}
    here.api.put({"kind": "Secret", "metadata": {"name": "theirs"}, "data": given})
    here.brokers.refused_user = StepRefused(31, "no right")
    await here.round()
    assert "could not set the password of user bob (SCRAM-SHA-512)" in here.said("User", "bob")[2]
    here.brokers.refused_user = None
    await here.round()
    assert here.brokers.passwords == {"bob": "chosen"}
