"""Where Spark finds Hadoop's S3 client: it has 700 MB, so it is not copied to where it already is."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas_jobs.app import connector
from barnabas_jobs.app import connector as sessions
from barnabas_jobs.app.connector import S3_JARS, ConnectorMissing, Jar, jars

FOLDER = Path("/opt/spark/connector")
S3_PATHS = [str(FOLDER / each.file) for each in S3_JARS]
POD_MASTER = "k8s://https://kubernetes.default.svc:443"


class Builder:
    """A session builder that keeps the configuration."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def master(self, _: str) -> "Builder":
        return self

    def appName(self, _: str) -> "Builder":  # noqa: N802  # Spark's name.
        return self

    def config(self, name: str, value: str) -> "Builder":
        self.conf[name] = value
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802  # Spark's name.
        return self.conf


@pytest.fixture
def conf_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the configuration of a session with S3 for a master."""

    def paths(folder: Path, wanted: tuple[Jar, ...] = ()) -> list[Path]:
        return [folder / each.file for each in wanted] or [folder / "kafka.jar"]

    def told(master: str) -> Any:
        monkeypatch.setattr(SparkSession, "builder", Builder())
        return sessions.session(master, FOLDER, {}, s3=True)

    monkeypatch.setattr(sessions, "jars", paths)
    monkeypatch.setattr(sessions, "java", lambda: "java")
    monkeypatch.delenv("BARNABAS_SPARK_JARS", raising=False)
    return told


def test_executors_of_the_jobs_image_use_its_jars_by_class_path(conf_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_SPARK_JARS", str(FOLDER))
    conf = conf_of(POD_MASTER)
    for role in ("driver", "executor"):
        assert conf[f"spark.{role}.extraClassPath"] == ":".join(S3_PATHS)
    assert conf["spark.jars"] == str(FOLDER / "kafka.jar")


def test_a_driver_without_executors_uses_the_jars_by_class_path(conf_of: Any) -> None:
    conf = conf_of("local[2]")
    assert conf["spark.driver.extraClassPath"] == ":".join(S3_PATHS)
    assert "spark.executor.extraClassPath" not in conf


@pytest.mark.parametrize(("master", "of_image"), [(POD_MASTER, False), ("spark://here:7077", True)])
def test_other_executors_get_the_jars_from_the_driver(
    conf_of: Any, master: str, of_image: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if of_image:
        monkeypatch.setenv("BARNABAS_SPARK_JARS", str(FOLDER))
    conf = conf_of(master)
    assert conf["spark.jars"].split(",") == [str(FOLDER / "kafka.jar"), *S3_PATHS]
    assert not [name for name in conf if name.endswith("extraClassPath")]


def test_a_missing_jar_in_an_image_is_reported_with_the_build_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's root file system is read-only, so the jars cannot be fetched into it."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "connector"
    monkeypatch.setenv("BARNABAS_SPARK_JARS", str(folder))
    with pytest.raises(ConnectorMissing, match="for archives in S3, build the image with --build-arg S3=yes"):
        jars(folder, S3_JARS)


def test_jars_that_are_not_fetched_in_time_are_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "FETCH_SECONDS_MAX", 0.01)
    with pytest.raises(ConnectorMissing, match=r"could not fetch the jars from Maven Central within 0\.01 s"):
        jars(tmp_path / "jars", S3_JARS)
