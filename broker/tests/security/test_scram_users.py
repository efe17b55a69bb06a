"""Credentials of SCRAM: what may be changed, and that every broker of a store goes by the change."""

import asyncio
from pathlib import Path

import pytest

from barnabas_broker.app.loop_time import SystemClock
from barnabas_broker.metadata.store.sqlite.sqlite_secrets import SqliteSecrets
from barnabas_broker.security.sasl.scram_changes import Deletion, Upsertion, decide_scram_changes
from barnabas_broker.security.sasl.scram_credential import ScramCredential
from barnabas_broker.security.sasl.scram_users import ScramUsers
from barnabas_core.errors import ErrorCode

KEY = b"k" * 32
ALICE = ("alice", "SCRAM-SHA-256")
GOOD = Upsertion("alice", 1, 4096, b"salt", KEY)


def verifier(name: bytes) -> ScramCredential:
    return ScramCredential(name, KEY, KEY, 4096)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ([GOOD._replace(user="")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([GOOD._replace(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([GOOD._replace(iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([GOOD._replace(salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([GOOD._replace(salted_password=b"short")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([GOOD._replace(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([Deletion("alice", 1)], ErrorCode.RESOURCE_NOT_FOUND),
        ([GOOD, Deletion("alice", 2)], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_a_mistake_is_refused_and_leaves_the_other_users(asked: list[Upsertion | Deletion], error: ErrorCode) -> None:
    decision = decide_scram_changes([*asked, GOOD._replace(user="bob")], {("carol", "SCRAM-SHA-256")})
    refusal = decision.outcomes[asked[0].user]
    assert refusal is not None
    assert refusal.code == error
    assert set(decision.changes) == {("bob", "SCRAM-SHA-256")}


def test_a_deletion_of_what_is_there_is_a_change() -> None:
    assert decide_scram_changes([Deletion("alice", 1)], {ALICE}).changes == {ALICE: None}


def test_all_brokers_have_one_secret_and_go_by_every_change(tmp_path: Path) -> None:
    async def run() -> None:
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

    asyncio.run(run())
