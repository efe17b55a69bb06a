"""Records of a transaction take effect when it commits, in the order of the log."""

from barnabas_broker.coordinators.runtime.writer import LoadedRecords, PendingRecords
from barnabas_broker.wire.key_values import Marker, TransactionalKeyValues

KEY = b"key"
COMMIT, ABORT = Marker(7, 0, 0, is_commit=True), Marker(7, 0, 0, is_commit=False)


def loaded(*slices: object) -> LoadedRecords:
    records = LoadedRecords()
    for some in slices:
        records.add(some)  # type: ignore[arg-type]
    return records


def in_transaction(value: bytes, producer_id: int = 7) -> TransactionalKeyValues:
    return TransactionalKeyValues(producer_id, {KEY: value})


def test_only_the_record_of_a_committed_transaction_is_applied() -> None:
    assert loaded({KEY: b"1"}, in_transaction(b"2"), COMMIT).newest == {KEY: b"2"}
    assert loaded({KEY: b"1"}, in_transaction(b"2"), ABORT).newest == {KEY: b"1"}


def test_a_record_of_an_open_transaction_is_pending_until_the_transaction_ends() -> None:
    records = loaded({KEY: b"1"}, in_transaction(b"2"))
    assert records.newest == {KEY: b"1"}
    decoded: PendingRecords[str] = records.pending.decoded(lambda _, value: value.decode(), str)
    assert KEY in decoded
    assert decoded.end(7, is_commit=True) == [(KEY, "2")]
    assert KEY not in decoded


def test_a_later_record_outside_the_transaction_overrides_the_pending_one() -> None:
    records = loaded(in_transaction(b"2"), {KEY: b"3"})
    assert KEY in records.pending
    assert records.pending.decoded(lambda _, value: value, repr).end(7, is_commit=True) == []
    assert loaded(in_transaction(b"2"), {KEY: b"3"}, COMMIT).newest == {KEY: b"3"}


def test_the_later_record_of_two_transactions_wins_although_its_transaction_ends_first() -> None:
    other = Marker(8, 0, 0, is_commit=True)
    assert loaded(in_transaction(b"1"), in_transaction(b"2", 8), other, COMMIT).newest == {KEY: b"2"}


def test_a_tombstone_also_removes_a_pending_record() -> None:
    records = loaded(in_transaction(b"2"), {KEY: None})
    assert KEY not in records.pending
    assert loaded(in_transaction(b"2"), {KEY: None}, COMMIT).newest == {KEY: None}
