"""Reports that cannot be written: the error names the option and its value, and no files are left."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import TopicPartition
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import lag_history, retention_audit, skew
from barnabas_jobs.planning.errors import JobFailed
from harness.mounts import fill, small_disk

JOBS = {"lag-history": lag_history, "retention-audit": retention_audit, "skew": skew}


def made(job: str, spark: SparkSession, world: World, report: Path) -> Any:
    """Make the report of the world's topic, which has one record that a group has read."""
    module: Any = JOBS[job]
    world.make(1)
    world.write(1, 1)
    world.client.commit("readers", TopicPartition(world.topic, 0, 1))
    options = {"bootstrap": world.bootstrap, "topics": [world.topic], "report": str(report)}
    return module.run(spark, msgspec.convert(options, module.Options))


@pytest.mark.parametrize("job", JOBS)
def test_a_report_below_a_file_is_refused(job: str, spark: SparkSession, world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's", encoding="utf-8")
    report = tmp_path / "file" / "report"
    with pytest.raises(JobFailed, match=f"^report={report} cannot be written: Not a directory"):
        made(job, spark, world, report)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("job", JOBS)
def test_a_file_at_the_path_of_the_report_is_kept_and_the_job_fails(
    job: str, spark: SparkSession, world: World, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    report.write_text("somebody's", encoding="utf-8")
    with pytest.raises(JobFailed, match=f"^report={report} exists already; name another folder, or remove this folder"):
        made(job, spark, world, report)
    assert report.read_text(encoding="utf-8") == "somebody's"
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize(
    "job", ["skew", *(pytest.param(each, marks=pytest.mark.soak(only=True)) for each in JOBS if each != "skew")]
)
def test_a_full_disk_leaves_no_report(job: str, spark: SparkSession, world: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        (disk / "reports").mkdir()
        fill(disk)
        with pytest.raises(JobFailed, match=f"^writing report={disk}/reports/report: the disk is full"):
            made(job, spark, world, disk / "reports" / "report")
        assert list((disk / "reports").iterdir()) == []
