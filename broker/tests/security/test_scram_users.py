"""SCRAM credentials: the changes that are allowed, and how every broker of a store applies them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_broker.app.loop_turns import SystemClock
from barnabas_broker.handlers.users import Present, decide
from barnabas_broker.metadata.store.sqlite_secrets import SqliteSecrets
from barnabas_broker.security.sasl.scram_credential import (
    SCRAM_HASHES,
    Named,
    PreviousPassword,
    ScramCredential,
    ScramUsers,
    credential_of,
)
from barnabas_broker.wire.messages import AlterUserScramCredentialsRequest as Request
from barnabas_core.errors import ErrorCode
from harness.manual_clock import START_MS
from harness.manual_timers import ManualTimers

KEY = b"k" * 32
ALICE = ("alice", "SCRAM-SHA-256")


def upsertion(name: str = "alice", **other: Any) -> Request.ScramCredentialUpsertion:
    good: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": KEY}
    return Request.ScramCredentialUpsertion(name=name, **(good | other))


def deletion(mechanism: int) -> Request.ScramCredentialDeletion:
    return Request.ScramCredentialDeletion(name="alice", mechanism=mechanism)


def verifier(name: bytes) -> ScramCredential:
    return ScramCredential(name, KEY, KEY, 4096)


def present(credentials: dict[Named, ScramCredential], overlap_ms_max: int = 60_000) -> Present:
    return Present(credentials, credentials, START_MS, overlap_ms_max)


def password(letter: bytes, salt: bytes = b"salt", previous: PreviousPassword | None = None) -> ScramCredential:
    made = credential_of(SCRAM_HASHES["SCRAM-SHA-256"], letter * 32, salt, 4096)
    return replace(made, previous=previous)


def another(letter: bytes, overlap_ms: int = 0, **other: Any) -> Request:
    return Request(upsertions=[upsertion(salted_password=letter * 32, previous_password_ms=overlap_ms, **other)])


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(upsertions=[upsertion("")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion("*")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Request(upsertions=[upsertion("ANONYMOUS")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
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
    decision = decide(request_, present({("carol", "SCRAM-SHA-256"): password(b"c")}))
    refusal = decision.outcomes[user]
    assert refusal is not None
    assert refusal.code == error
    assert set(decision.changes) == {("bob", "SCRAM-SHA-256")}


def test_a_deletion_of_an_existing_credential_is_a_change() -> None:
    assert decide(Request(deletions=[deletion(1)]), present({ALICE: password(b"1")})).changes == {ALICE: None}


def test_a_user_whose_name_stands_for_others_is_refused_with_the_meaning_and_can_still_be_deleted() -> None:
    there = {("*", "SCRAM-SHA-256"): password(b"1")}
    refusal = decide(Request(upsertions=[upsertion("*")]), present(there)).outcomes["*"]
    meaning = "name=*: allowed: the name of one user, because in Kafka User:* stands for all users"
    assert str(refusal) == meaning
    deletion_ = Request.ScramCredentialDeletion(name="*", mechanism=1)
    assert decide(Request(deletions=[deletion_]), present(there)).changes == {("*", "SCRAM-SHA-256"): None}


async def test_all_brokers_share_one_secret_and_apply_every_change(tmp_path: Path) -> None:
    stores = [await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock()) for _ in range(2)]
    first, second = (ScramUsers(store, asyncio.sleep, SystemClock(), ManualTimers()) for store in stores)
    await first.load(b"one")
    await first.change({ALICE: verifier(b"1"), ("b/o,b", "SCRAM-SHA-512"): verifier(b"2")})
    await second.load(b"two")
    assert second.secret == b"one"
    assert [each.iterations for each in second.shapes("SCRAM-SHA-256")] == [4096]
    assert second.credentials == first.credentials
    changed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    second.on_change = lambda user, mechanism, _valid: changed.put_nowait((user, mechanism))
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


def test_a_request_for_an_overlap_keeps_the_previous_password_until_its_time() -> None:
    previous = PreviousPassword(password(b"1").keys, START_MS + 5_000)
    decision = decide(another(b"2", 5_000), present({ALICE: password(b"1")}))
    assert decision.changes == {ALICE: password(b"2", previous=previous)}


def test_a_request_as_kafkas_tools_send_it_ends_all_earlier_passwords() -> None:
    there = password(b"2", previous=PreviousPassword(password(b"1").keys, START_MS + 5_000))
    assert decide(another(b"3"), present({ALICE: there})).changes == {ALICE: password(b"3")}
    assert decide(another(b"2"), present({ALICE: there})).changes == {ALICE: password(b"2")}


def test_a_third_password_ends_the_first_one_even_if_both_requests_ask_for_an_overlap() -> None:
    there = password(b"2", previous=PreviousPassword(password(b"1").keys, START_MS + 50_000))
    wanted = password(b"3", previous=PreviousPassword(password(b"2").keys, START_MS + 5_000))
    assert decide(another(b"3", 5_000), present({ALICE: there})).changes == {ALICE: wanted}


def test_a_repeated_request_for_an_overlap_keeps_the_previous_password_and_its_end() -> None:
    there = password(b"2", previous=PreviousPassword(password(b"1").keys, START_MS + 500))
    assert decide(another(b"2", 5_000), present({ALICE: there})).changes == {ALICE: there}


def test_the_first_password_of_a_user_has_nothing_to_overlap_with() -> None:
    assert decide(another(b"1", 5_000), present({})).changes == {ALICE: password(b"1")}


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (another(b"2", -1), "PreviousPasswordMs=-1: must be from 0 to 60000 (sasl.scram.password.overlap.max.ms)"),
        (another(b"2", 60_001), "PreviousPasswordMs=60001: must be from 0 to 60000"),
        (another(b"2", 1, salt=b"other"), "must be 0 if salt or iterations differ from the current password's"),
        (another(b"2", 1, iterations=8192), "must be 0 if salt or iterations differ from the current password's"),
    ],
)
def test_an_overlap_that_is_too_long_or_of_another_salt_is_refused_and_changes_nothing(
    request_: Request, allowed: str
) -> None:
    decision = decide(request_, present({ALICE: password(b"1")}))
    refusal = decision.outcomes["alice"]
    assert refusal is not None
    assert refusal.code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert allowed in str(refusal)
    assert not decision.changes


def test_a_password_that_another_broker_has_just_replaced_does_not_stay_valid() -> None:
    known, stored = {ALICE: password(b"1")}, {ALICE: password(b"2")}
    previous = PreviousPassword(password(b"2").keys, START_MS + 5_000)
    decision = decide(another(b"3", 5_000), Present(known, stored, START_MS, 60_000))
    assert decision.changes == {ALICE: password(b"3", previous=previous)}


async def test_a_broker_that_does_not_follow_yet_reads_what_another_one_has_stored(tmp_path: Path) -> None:
    stores = [await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock()) for _ in range(2)]
    first, second = (ScramUsers(store, asyncio.sleep, SystemClock(), ManualTimers()) for store in stores)
    await first.load(b"one")
    await second.load(b"two")
    await first.change({ALICE: password(b"1")})
    assert await second.stored([ALICE, ("bob", "SCRAM-SHA-256")]) == {ALICE: password(b"1")}
    assert ALICE not in second.credentials


async def test_a_previous_password_ends_at_its_time_on_a_broker_that_has_restarted_since(tmp_path: Path) -> None:
    stores = [await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock()) for _ in range(2)]
    timers = [ManualTimers() for _ in stores]
    first, second = (
        ScramUsers(store, asyncio.sleep, each.clock, each) for store, each in zip(stores, timers, strict=True)
    )
    await first.load(b"one")
    now_ms = timers[0].clock.now_ms()
    both = password(b"2", previous=PreviousPassword(password(b"1").keys, now_ms + 5_000))
    await first.change({ALICE: both})
    await second.load(b"two")
    changes: list[tuple[str, str, frozenset[bytes]]] = []
    second.on_change = lambda *change: changes.append(change)
    timers[1].pass_time(4.9)
    assert second.credentials[ALICE] == both
    timers[1].pass_time(0.1)
    assert second.credentials[ALICE] == password(b"2")
    assert changes == [(*ALICE, frozenset({password(b"2").keys.verifier_id}))]
    await second.load(b"three")
    assert second.credentials[ALICE] == password(b"2"), "the store still has the previous password"
    assert len(changes) == 1
    assert not timers[1].waiting


async def test_a_change_tells_which_passwords_stay_valid(tmp_path: Path) -> None:
    timers = ManualTimers()
    store = await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock())
    users = ScramUsers(store, asyncio.sleep, timers.clock, timers)
    await users.load(b"one")
    one, two = (password(letter).keys.verifier_id for letter in (b"1", b"2"))
    valid: list[frozenset[bytes]] = []
    users.on_change = lambda _user, _mechanism, ids: valid.append(ids)
    end_ms = timers.clock.now_ms() + 5_000
    await users.change({ALICE: password(b"1")})
    await users.change({ALICE: password(b"2", previous=PreviousPassword(password(b"1").keys, end_ms))})
    await users.change({ALICE: password(b"2")})
    await users.change({ALICE: None})
    assert valid == [{one, two}, {two}, set()]
    assert not timers.waiting, "an overlap that is over has no timer"
