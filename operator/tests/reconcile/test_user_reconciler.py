"""Users in the rounds over a Cluster: Secrets, passwords, and what becomes of them."""

from base64 import b64decode, b64encode
from typing import Any

from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.users.cluster_users import SCRAM_512
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
        world.api.put(user(quotas={"producerByteRate": 5}))
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
        assert world.brokers.accounts["alice"].quotas == {"producer_byte_rate": 5.0}
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
        assert message.startswith("a Secret alice is there already, and does not belong to this User")
        assert secret(world) == {"ca.key": "theirs"}
        assert not world.brokers.accounts

    play(scenario)


def test_no_user_may_have_the_name_of_the_operator_or_of_brokers(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.api.put(resource("Cluster", "one"))
        world.api.put(user("mallory", username="CN=one-operator,O=barnabas.dev"))
        await world.round()
        _, reason, message = world.said("User", "mallory")
        assert reason == "ResourceConflict"
        assert message.startswith("spec.username is CN=one-operator,O=barnabas.dev")
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
