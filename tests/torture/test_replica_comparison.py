"""The comparison of replicas finds the first batch in which logs differ."""

from pathlib import Path

from barnabas_broker.wire.records import Record, encode_batch
from harness.replica_comparison import differences


def batch(base_offset: int, value: bytes, leader_epoch: int = 0) -> bytes:
    records = [Record(delta, 1_700_000_000_000, None, value, ()) for delta in range(2)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, attributes=0))


def replica(folder: Path, *segments: bytes) -> Path:
    folder.mkdir()
    for number, data in enumerate(segments):
        (folder / f"{number:020}.log").write_bytes(data)
    return folder


def test_replicas_with_the_same_batches_in_other_segments_are_equal(tmp_path: Path) -> None:
    first = replica(tmp_path / "a", batch(0, b"x") + batch(2, b"y"))
    second = replica(tmp_path / "b", batch(0, b"x"), batch(2, b"y"))
    assert differences({"a": first, "b": second}, 4) == []


def test_another_value_another_epoch_and_a_missing_batch_are_reported_with_their_offsets(tmp_path: Path) -> None:
    good = replica(tmp_path / "good", batch(0, b"x") + batch(2, b"y"))
    others = {
        "value": replica(tmp_path / "value", batch(0, b"x") + batch(2, b"z")),
        "epoch": replica(tmp_path / "epoch", batch(0, b"x") + batch(2, b"y", leader_epoch=1)),
        "short": replica(tmp_path / "short", batch(0, b"x")),
        "torn": replica(tmp_path / "torn", batch(0, b"x") + batch(2, b"y")[:-1]),
    }
    found = differences({"good": good, **others}, 4)
    assert [line.partition(" has offsets 2-3 of epoch 0")[0] for line in found] == ["good"] * 4
    assert ["epoch 1" in line for line in found] == [False, True, False, False]
    assert ["nothing more" in line for line in found] == [False, False, True, True]


def test_replicas_are_compared_up_to_the_shortest_one_if_no_end_is_given(tmp_path: Path) -> None:
    long = replica(tmp_path / "long", batch(0, b"x") + batch(2, b"y"))
    short = replica(tmp_path / "short", batch(0, b"x"))
    assert differences({"long": long, "short": short}) == []
    assert differences({"long": long, "short": short}, 2) == []
    assert len(differences({"long": long, "short": short}, 4)) == 1


def test_records_before_the_latest_start_of_a_log_are_not_compared(tmp_path: Path) -> None:
    long = replica(tmp_path / "long", batch(0, b"x") + batch(2, b"y"))
    trimmed = replica(tmp_path / "trimmed", batch(2, b"y"))
    assert differences({"long": long, "trimmed": trimmed}, 4) == []
