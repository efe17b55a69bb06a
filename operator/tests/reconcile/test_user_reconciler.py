"""Users in the rounds over a Cluster: Secrets, passwords, and what becomes of them."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.users.cluster_users import SCRAM_512
from barnabas_operator.planning.users.user_steps import UserStep
from barnabas_operator.reconcile.users.user_reconciler import PART
from harness.worker_world import Play, World, resource

SCRAM = {"type": "scram-sha-512"}


def user(name: str = "alice", **more: Any) -> dict[str, Any]:
    return resource("User", name, **{"authentication": SCRAM, **more})


def secret(world: World, name: str = "alice") -> dict[str, str]:
    found = world.api.found("Secret", name)
    assert found is not None, f"Secret {name} is missing"
    return {key: b64decode(text).decode() for key, text in found["data"].items() if key != "user.p12"}


def test_a_user_gets_a_password_and_a_secret_which_are_taken_from_it_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        world.api.put(user(quotas={"producerByteRate": 5, "controllerMutationRate": 5}))
        await world.round()
        assert world.said("User", "alice")[:2] == ("True", "Reconciled")
        assert secret(world)["password"] == world.brokers.passwords["alice"] == "a" * 32
        assert world.brokers.accounts["alice"].mechanisms == {SCRAM_512}
        body = world.api.found("User", "alice")
        assert body is not None
        assert (body["status"]["username"], body["status"]["secret"]) == ("alice", "alice")
        writes = len(world.api.writes)
        await world.round()
        assert len(world.api.writes) == writes, "nothing has changed"
        world.brokers.accounts.clear()
        await world.round()
        assert world.brokers.accounts["alice"].quotas == {"producer_byte_rate": 5.0, "controller_mutation_rate": 5.0}
        assert "DriftUndone" in [reason for reason, _ in world.api.events()]
        world.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await world.round()
        assert not world.brokers.accounts["alice"].is_there
        assert world.api.found("User", "alice") is None

    play(scenario)


def test_another_value_of_the_annotation_rotates_the_password(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        world.api.put(user())
        await world.round()
        stored = world.api.found("Secret", "alice")
        body = world.api.found("User", "alice")
        assert stored is not None
        assert body is not None
        world.api.put({**stored, "data": {**stored["data"], "password": b64encode(b"old").decode()}})
        meta = {**body["metadata"], "annotations": {"barnabas.dev/rotate-password": "now"}}
        world.api.put({**body, "metadata": meta})
        await world.round()
        assert secret(world)["password"] == "a" * 32
        assert world.said("User", "alice")[0] == "True"

    play(scenario)


def test_a_secret_of_somebody_else_is_never_written(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        theirs = {"kind": "Secret", "metadata": {"name": "alice"}, "data": {"ca.key": b64encode(b"theirs").decode()}}
        world.api.put(theirs)
        world.api.put(user())
        await world.round()
        status, reason, message = world.said("User", "alice")
        assert (status, reason) == ("False", "ResourceConflict")
        assert message.startswith("Secret alice already exists and does not belong to the User")
        assert secret(world) == {"ca.key": "theirs"}
        assert not world.brokers.accounts

    play(scenario)


def test_of_many_users_the_first_are_ready_before_the_last_are_begun(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        for number in range(PART + 1):
            world.api.put(user(f"user-{number:04d}"))
        apply = world.brokers.apply_to_users

        def apply_once(steps: Sequence[UserStep]) -> Any:
            if world.brokers.accounts:
                raise ClusterUnreachable("the broker has just died")
            return apply(steps)

        world.brokers.apply_to_users = apply_once  # type: ignore[method-assign]
        await world.round()
        assert world.said("User", f"user-{PART - 1:04d}")[0] == "True"
        last = world.api.found("User", f"user-{PART:04d}")
        assert last is not None
        assert "status" not in last

    play(scenario)


def test_a_secret_that_an_operator_made_before_it_ended_keeps_its_password(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        owner = {"kind": "User", "name": "alice", "uid": "alice"}
        meta = {"name": "alice", "ownerReferences": [owner]}
        world.api.put({"kind": "Secret", "metadata": meta, "data": {"password": b64encode(b"first").decode()}})
        world.api.put(user())
        world.api.put(user("bob"))
        reads: list[str] = []

        def note(method: str, path: str, _: object) -> None:
            reads.append(f"{method} {path}")

        world.api.refuse = note
        await world.round()
        assert secret(world)["password"] == world.brokers.passwords["alice"] == "first"
        asked = [each.rpartition("/")[2] for each in reads if each.startswith("GET") and "/secrets/" in each]
        assert "alice" in asked
        assert "bob" not in asked, "a new User has no Secret"

    play(scenario)


@pytest.mark.parametrize("name", ["operator", "broker", "lag-exporter", "maintenance"])
def test_no_user_may_have_the_name_of_what_works_for_the_cluster(play: Play, name: str) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        world.api.put(user("mallory", username=f"CN=one-{name},O=barnabas.dev"))
        await world.round()
        _, reason, message = world.said("User", "mallory")
        assert reason == "ResourceConflict"
        assert message.startswith(f"spec.username is CN=one-{name},O=barnabas.dev")
        assert not world.brokers.accounts

    play(scenario)


def test_a_user_without_what_it_needs_says_so_and_goes_on_when_it_is_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        ref = {"valueFrom": {"secretKeyRef": {"name": "theirs", "key": "pw"}}}
        world.api.put(resource("Cluster", "one"))
        world.api.put(user("bob", authentication={**SCRAM, "password": ref}))
        world.api.put(user("carol", authentication={"type": "tls"}))
        world.api.put(user("robert", username="bob"))
        await world.round()
        assert world.said("User", "bob")[1] == "NoPassword"
        assert world.said("User", "robert")[1] == "ResourceConflict"
        _, reason, message = world.said("User", "carol")
        assert reason == "NoAuthority"
        assert "ca.key of Secret one-clients-ca or ca.crt of Secret one-clients-ca-cert is missing" in message
        given = {"pw": b64encode(b"chosen\n").decode()}
        world.api.put({"kind": "Secret", "metadata": {"name": "theirs"}, "data": given})
        world.brokers.refused_user = StepRefused(31, "no right")
        await world.round()
        assert "could not set the password of user bob (SCRAM-SHA-512)" in world.said("User", "bob")[2]
        world.brokers.refused_user = None
        await world.round()
        assert world.brokers.passwords == {"bob": "chosen"}

    play(scenario)
