"""The job `audit`: on a running broker, and on replicas with planted damage of each kind."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from jobs_world import World
from made_logs import RECORDS, MadeReplica, batch, write_log_dir, write_offsets, write_segment
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import audit
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.logs import batches as kinds
from harness.server_process import ServerProcess

BROKERS = (1, 2, 3)
MIB = 1 << 20
SIZE = len(batch(0))
Told = tuple[str, int, str, int | None, int | None]
"""Kind, broker, file, position, offset."""


class Planted:
    """A topic with a partition for each case, on three brokers."""

    def __init__(self, folder: Path, cases: int) -> None:
        self.folder = folder
        self.keys = [("flights", number) for number in range(cases)]
        self.brokers = {each: write_log_dir(folder / str(each), each, self.keys) for each in BROKERS}
        self.after_the_read: list[Callable[[], None]] = []
        self.offsets = {each: dict.fromkeys(self.keys, 60) for each in BROKERS}

    def replica(self, broker: int, case: int) -> MadeReplica:
        return self.brokers[broker]["flights", case]

    def ends_at(self, broker: int, case: int, offset: int) -> None:
        """Set the end offset that its checkpoints have."""
        self.offsets[broker]["flights", case] = offset

    def then_changed(self, read: Callable[..., audit.FilesRead]) -> Callable[..., audit.FilesRead]:
        """Make the planned changes between the read of the files and the second look at their folders."""

        def reading(*arguments: Any) -> audit.FilesRead:
            found = read(*arguments)
            for change in self.after_the_read:
                change()
            return found

        return reading

    def write(self) -> list[str]:
        """Write the checkpoints, and return the option `log_dirs`."""
        for broker, offsets in self.offsets.items():
            write_offsets(self.folder / str(broker), offsets)
        return [f"{broker}:{self.folder / str(broker)}" for broker in BROKERS]


def run(spark: SparkSession, log_dirs: list[str], report: Path, **more: Any) -> audit.Result:
    return audit.run(spark, audit.Options(log_dirs=log_dirs, report=str(report), **more))


def told(result: audit.Result) -> set[Told]:
    return {
        (each.kind, each.broker, "/".join(each.file.split("/")[-2:]), each.position, each.offset)
        for each in result.findings
    }


def other_content(planted: Planted, case: int) -> None:
    """Broker 2 has a batch with other records and their valid CRC."""
    planted.replica(2, case).patch(20, ".log", SIZE, batch(25, 3, value=b"y" * 100))


def flipped_bit(planted: Planted, case: int) -> None:
    """Broker 1's disk changed a byte: its batch has the same CRC as the others, and other bytes."""
    planted.replica(1, case).patch(0, ".log", 2 * SIZE + 70, b"?")


def uncommitted(planted: Planted, case: int) -> None:
    """Broker 1 was the leader and died: its last batch differs from the others' and was never committed."""
    planted.replica(1, case).patch(40, ".log", 2 * SIZE, batch(50, 3, value=b"z" * 100))
    planted.ends_at(1, case, 50)


def compacting(planted: Planted, case: int) -> None:
    """Broker 1 compacts for the first time; its checkpoint does not say so until it has finished."""
    replica = planted.replica(1, case)
    write_segment(replica.folder, [batch(0), batch(15)], 0)
    write_segment(replica.folder, [batch(30, 3)], 20)
    replica.folder.joinpath("00000000000000000020.log.cleaned").write_bytes(b"")


def merged_while_it_was_read(planted: Planted, case: int) -> None:
    """Broker 2 merges two segments by compaction: the second was read before the merge, the first after it."""
    replica = planted.replica(2, case)
    found = [batch(offset, 0 if offset < 20 else 3) for offset in range(0, 40, RECORDS)]
    write_segment(replica.folder, found, 0)

    def swapped() -> None:
        for suffix in (".log", ".index", ".timeindex"):
            replica.file(20, suffix).unlink()
        write_offsets(planted.folder / "2", {("flights", case): 40}, "cleaner-offset-checkpoint")

    planted.after_the_read.append(swapped)


SECOND = "00000000000000000020.log"
CASES: list[tuple[Callable[[Planted, int], None], list[Told]]] = [
    (other_content, [(kinds.REPLICAS_DIFFER, 2, SECOND, SIZE, 25)]),
    (
        flipped_bit,
        [
            (kinds.BAD_CRC, 1, "00000000000000000000.log", 2 * SIZE, 10),
            (kinds.REPLICAS_DIFFER, 1, "00000000000000000000.log", 2 * SIZE, 10),
        ],
    ),
    (uncommitted, []),
    (compacting, []),
    (merged_while_it_was_read, []),
]


def plant_strays(folder: Path) -> set[Told]:
    """Make files and folders that belong to no partition, beside partitions and in one of them."""
    unique = "0123456789abcdef0123456789abcdef"
    for name in ("backup", f"flights-7.{unique}-stray", f"flights-8.{unique}-delete"):
        (folder / name).mkdir()
    (folder / "notes.txt").write_text("remember")
    (folder / "flights-3" / "00000000000000000099.index").write_bytes(b"")
    (folder / "flights-3" / "core.1234").write_bytes(b"")
    return {
        (kinds.NO_PARTITION, 1, "/".join([*parents, name]), None, None)
        for parents, name in (
            (["1"], "backup"),
            (["1"], f"flights-7.{unique}-stray"),
            (["1"], "notes.txt"),
            (["flights-3"], "00000000000000000099.index"),
            (["flights-3"], "core.1234"),
        )
    }


@pytest.mark.slow
def test_audit_finds_planted_damage_of_each_kind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(tmp_path, len(CASES))
    expected = plant_strays(tmp_path / "1")
    for case, (damage, found) in enumerate(CASES):
        damage(planted, case)
        expected |= {(kind, broker, f"flights-{case}/{file}", at, offset) for kind, broker, file, at, offset in found}
    (tmp_path / "3" / "cleaner-offset-checkpoint").write_text("damaged")
    expected.add((kinds.UNREADABLE, 3, "3/cleaner-offset-checkpoint", None, None))
    report = tmp_path / "report"
    monkeypatch.setattr(audit, "_read", planted.then_changed(audit._read))
    result = run(spark, planted.write(), report)
    assert told(result) == expected
    assert sum(result.found.values()) == len(expected)
    assert not result.fine
    cases = len(CASES)
    assert (result.replicas, result.partitions, result.uncommitted_differences) == (3 * cases, cases, 1)
    (differs,) = (each for each in result.findings if each.offset == 25 and each.partition == 0)
    crcs = [f"CRC {int.from_bytes(data[17:21], 'big'):08x}" for data in (batch(25, 3), batch(25, 3, value=b"y" * 100))]
    assert differs.detail == "; ".join(
        f"broker {broker} has offsets 25-29 of epoch 3, {crcs[broker == 2]}" for broker in BROKERS
    )
    assert json.loads((report / "audit.json").read_bytes())["found"] == result.found
    assert spark.read.parquet(str(report / "findings.parquet")).count() == sum(result.found.values())
    page = (report / "audit.html").read_text(encoding="utf-8")
    assert "http" not in page
    assert differs.detail in page


WRITES = 5
WRITES_EVERY_S = 0.2
"""With this pause segments roll often enough, and the audit still gets most of the processor."""


@pytest.mark.slow
def test_audit_finds_nothing_wrong_on_a_running_broker_under_writes(
    spark: SparkSession, broker: ServerProcess, world: World, tmp_path: Path
) -> None:
    """Segments roll and are deleted during the audit."""
    world.make(1, segment_bytes=str(MIB), retention_bytes=str(3 * MIB), file_delete_delay_ms="0")
    world.write_random(4 * MIB)
    stop = threading.Event()

    def write_on() -> None:
        # The writer stops at some point: on a busy machine, an audit of a log that always grows would take minutes.
        for _ in range(WRITES):
            if stop.wait(WRITES_EVERY_S):
                return
            world.write_random(MIB)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        log_dir = broker.log_path.parent / "logs"
        result = run(spark, [f"1:{log_dir}"], tmp_path / "report", deep=True)
    finally:
        stop.set()
        writer.join()
    assert result.findings == []
    assert result.fine
    assert result.segments > 2


@pytest.mark.parametrize(
    ("log_dirs", "reason"),
    [
        (["1:{0}/none"], "there is no such folder; name the mount point of the log dir of broker 1"),
        (["1:{0}"], "the folder has no meta.properties, so it is not a broker's log dir"),
        (["2:{0}/1"], "the log dir's meta.properties has node.id=1"),
        (
            ["1:{0}/1", "2:{0}/other"],
            "the log dir is of cluster.id=other; {0}/1 is of cluster.id=made. Audit",
        ),
        (["9:{0}/broken"], "meta.properties cannot be read: the file has no node.id"),
        (["1:{0}/1", "1:{0}/1/"], "log_dirs=1:{0}/1: the log dir is given twice; name each log dir once"),
        (["3:{0}/empty"], "the log dirs hold no partition"),
    ],
)
def test_audit_refuses_folders_that_are_no_log_dirs(tmp_path: Path, log_dirs: list[str], reason: str) -> None:
    write_log_dir(tmp_path / "1", 1, [("flights", 0)])
    write_log_dir(tmp_path / "other", 2, [])
    (tmp_path / "other" / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=2\n")
    write_log_dir(tmp_path / "broken", 9, [])
    (tmp_path / "broken" / "meta.properties").write_bytes(b"version=1\n")
    write_log_dir(tmp_path / "empty", 3, [])
    words = [each.format(tmp_path) for each in log_dirs]
    with pytest.raises(JobFailed) as failed:
        run(cast(SparkSession, None), words, tmp_path / "report")
    assert reason.format(tmp_path) in str(failed.value)
    assert not (tmp_path / "report").exists()


def test_audit_refuses_a_topic_that_no_log_dir_has(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "1", 1, [("flights", 0)])
    with pytest.raises(JobFailed, match="topics=orders: no log dir has a partition of these topics"):
        run(cast(SparkSession, None), [f"1:{tmp_path / '1'}"], tmp_path / "report", topics=["flights", "orders"])
