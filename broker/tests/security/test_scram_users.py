"""SCRAM credentials: the changes that are allowed, and how every broker of a store applies them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.app.loop_time import SystemClock
from barnabas_broker.handlers.alter_user_scram_credentials import decide
from barnabas_broker.metadata.store.sqlite.sqlite_secrets import SqliteSecrets
from barnabas_broker.security.sasl.scram_credential import ScramCredential
from barnabas_broker.security.sasl.scram_users import ScramUsers
from barnabas_broker.wire.messages import AlterUserScramCredentialsRequest as Request
from barnabas_core.errors import ErrorCode

KEY = b"k" * 32
ALICE = ("alice", "SCRAM-SHA-256")


def upsertion(name: str = "alice", **other: Any) -> Request.ScramCredentialUpsertion:
    good: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": KEY}
    return Request.ScramCredentialUpsertion(name=name, **(good | other))


def deletion(mechanism: int) -> Request.ScramCredentialDeletion:
    return Request.ScramCredentialDeletion(name="alice", mechanism=mechanism)


def verifier(name: bytes) -> ScramCredential:
    return ScramCredential(name, KEY, KEY, 4096)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(upsertions=[upsertion("")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion(iterations=4095)]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion(iterations=16_385)]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion(salt=b"")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion(salted_password=b"short")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion(mechanism=3)]), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Request(deletions=[deletion(1)]), ErrorCode.RESOURCE_NOT_FOUND),
        (Request(upsertions=[upsertion()], deletions=[deletion(2)]), ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_an_invalid_change_is_refused_and_does_not_affect_other_users(request_: Request, error: ErrorCode) -> None:
    user = [*request_.deletions, *request_.upsertions][0].name
    request_.upsertions = [*request_.upsertions, upsertion("bob")]
    decision = decide(request_, {("carol", "SCRAM-SHA-256")})
    refusal = decision.outcomes[user]
    assert refusal is not None
    assert refusal.code == error
    assert set(decision.changes) == {("bob", "SCRAM-SHA-256")}


def test_a_deletion_of_an_existing_credential_is_a_change() -> None:
    assert decide(Request(deletions=[deletion(1)]), {ALICE}).changes == {ALICE: None}


async def test_all_brokers_share_one_secret_and_apply_every_change(tmp_path: Path) -> None:
    stores = [await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock()) for _ in range(2)]
    first, second = (ScramUsers(store, asyncio.sleep) for store in stores)
    await first.load(b"one")
    await first.change({ALICE: verifier(b"1"), ("b/o,b", "SCRAM-SHA-512"): verifier(b"2")})
    await second.load(b"two")
    assert second.secret == b"one"
    assert [each.iterations for each in second.shapes("SCRAM-SHA-256")] == [4096]
    assert second.credentials == first.credentials
    changed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    second.on_change = lambda *name: changed.put_nowait(name)
    following = asyncio.ensure_future(second.follow())
    await first.change({ALICE: verifier(b"3")})
    assert await changed.get() == ALICE
    assert second.credentials[ALICE] == verifier(b"3")
    await first.change({ALICE: None})
    assert await changed.get() == ALICE
    assert ALICE not in second.credentials
    assert not second.shapes("SCRAM-SHA-256")
    following.cancel()
    for store in stores:
        await store.close()
