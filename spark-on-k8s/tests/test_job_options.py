"""Options of jobs and the command that parses them: errors name what is allowed. No Spark runs here."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas_jobs.app import connector
from barnabas_jobs.app.connector import JARS, ConnectorMissing, jars
from barnabas_jobs.app.main import EXIT_FAILED, EXIT_USAGE, main
from barnabas_jobs.app.run import JOBS, listing
from barnabas_jobs.jobs import archive, audit, lag_history, restore, skew, verify
from barnabas_jobs.planning.errors import BadOption
from barnabas_jobs.planning.options import parse

GIVEN = ["bootstrap=localhost:9092", "topic=flights", "archive=/archive"]
LOCATION = "a folder of this machine, or s3a://BUCKET/FOLDER, without the characters * ? [ ] { } \\"


def test_words_become_typed_options() -> None:
    options = parse(archive.Options, [*GIVEN, "commit_records=1000", "fail_on_data_loss=false"])
    assert options == archive.Options(
        bootstrap="localhost:9092",
        topic="flights",
        archive="/archive",
        commit_records=1000,
        fail_on_data_loss=False,
    )


def test_the_properties_of_a_catalog_are_words_of_their_own() -> None:
    words = ["catalog.type=sql", "catalog.uri=sqlite:////archive/x=y.db", "namespace=lake.raw"]
    options = parse(archive.Options, [*GIVEN, *words])
    assert options.catalog == {"type": "sql", "uri": "sqlite:////archive/x=y.db"}
    assert options.namespace == "lake.raw"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["catalog.type=hive"], "catalog.type=hive; allowed: catalog.PROPERTY=VALUE, where PROPERTY is one of "),
        (["catalog=rest"], "--option catalog=rest; allowed: catalog.PROPERTY=VALUE, where PROPERTY is one of "),
        (["catalog.uri=a", "catalog.uri=b"], "--option catalog.uri: the option is given twice; give each option once"),
        (["topic.x=a"], "--option topic.x=a; allowed: NAME=VALUE, with NAME one of topic, archive, catalog, "),
        (["namespace=a/b"], "--option namespace=a/b; allowed: a namespace of the catalog: names of letters, "),
    ],
)
def test_wrong_properties_of_a_catalog_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(BadOption) as found:
        parse(archive.Options, [*GIVEN, *words])
    assert str(found.value).startswith(told)


def test_an_archive_in_a_bucket_needs_a_catalog() -> None:
    told = r"archive=s3a://b/lake and catalog=nothing; allowed: s3a://BUCKET/FOLDER together with catalog\.type"
    with pytest.raises(BadOption, match=told):
        parse(archive.Options, [*GIVEN[:2], "archive=s3a://b/lake"])
    parse(archive.Options, [*GIVEN[:2], "archive=s3a://b/lake", "catalog.type=rest"])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("commit_records=0", "--option commit_records=0; allowed: a whole number, 1 or more"),
        ("commit_records=many", "--option commit_records=many; allowed: a whole number, 1 or more"),
        ("fail_on_data_loss=maybe", "--option fail_on_data_loss=maybe; allowed: true or false"),
        ("topic=flights", "--option topic: the option is given twice; give each option once"),
        ("nonsense", "--option nonsense; allowed: NAME=VALUE, with NAME one of topic, archive, catalog, "),
        ("colour=red", "--option colour=red; allowed: NAME=VALUE, with NAME one of topic, archive, catalog, "),
    ],
)
def test_a_wrong_option_is_refused_with_the_allowed_values(word: str, told: str) -> None:
    with pytest.raises(BadOption) as found:
        parse(archive.Options, [*GIVEN, word])
    assert str(found.value).startswith(told)


@pytest.mark.parametrize(
    ("job", "words", "told"),
    [
        (
            "restore",
            ["replicas=3"],
            "replicas=3 and create=false; allowed: replicas together with create=true, which creates the topic",
        ),
        (
            "restore",
            ["from_time=2013-01-02T00:00:00Z", "to_time=2013-01-02T00:00:00Z"],
            "00:00:00+00:00; allowed: from_time < to_time",
        ),
        (
            "restore",
            ["from_offset=5", "to_offset=4"],
            "from_offset=5 and to_offset=4; allowed: from_offset < to_offset",
        ),
        ("archive", ["delete_archived=true", "continuous=true"], "delete_archived=true and continuous=true; allowed: "),
        (
            "archive",
            ["schema=/s", "schema_registry=http://a"],
            "schema=/s and schema_registry=http://a; allowed: only one",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    job: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says that a retry would fail in the same way."""
    given = [f"--option={word}" for word in (*GIVEN, *words)]
    assert main(["run", job, *given]) == EXIT_USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("to_time", ["2026-01-01T00:00:00Z", "2026-02-01T01:00:00+01:00"])
def test_an_objective_over_a_range_that_ends_before_it_begins_is_refused(to_time: str) -> None:
    """Such a range has no commits, so no group could miss its objective."""
    with pytest.raises(BadOption, match="allowed: from_time < to_time"):
        parse(
            lag_history.Options,
            [GIVEN[0], "report=/report", "max_records=5", "from_time=2026-02-01T00:00:00Z", f"to_time={to_time}"],
        )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (GIVEN[:2], "--option archive=...: the option is missing; allowed: " + LOCATION),
        (
            [*GIVEN[:2], "archive=s3a://bucket"],
            "--option archive=s3a://bucket; allowed: " + LOCATION,
        ),
        ([*GIVEN[:2], "archive=/a/[b]"], "--option archive=/a/[b]; allowed: " + LOCATION),
        (
            [*GIVEN[:2], "archive=gs://bucket/a"],
            "--option archive=gs://bucket/a; allowed: " + LOCATION,
        ),
        (["bootstrap=here"], "--option bootstrap=here; allowed: HOST:PORT[,HOST:PORT...]"),
        ([*GIVEN, "match=colour"], "--option match=colour; allowed: offset or order"),
    ],
)
def test_a_missing_or_wrong_value_is_refused_with_the_allowed_form(given: list[str], told: str) -> None:
    with pytest.raises(BadOption) as found:
        parse(verify.Options, given)
    assert str(found.value) == told


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (
            audit.Options,
            ["report=/r", "log_dirs=a"],
            (
                "--option log_dirs=a; allowed: a list with commas, in which each item is ID:/FOLDER, the id of a "
                "broker and one of its log dirs"
            ),
        ),
        (
            lag_history.Options,
            ["bootstrap=localhost:9092", "report=/r", "max_seconds=soon"],
            "--option max_seconds=soon; allowed: a number of seconds, 0 or more",
        ),
        (
            lag_history.Options,
            ["bootstrap=localhost:9092", "report=/r", "from_time=2026-01-31"],
            "--option from_time=2026-01-31; allowed: a time with its time zone, such as 2013-01-31T06:30:00Z",
        ),
    ],
)
def test_wrong_lists_times_and_numbers_are_refused_with_the_allowed_form(
    kind: type[Any], given: list[str], told: str
) -> None:
    with pytest.raises(BadOption) as found:
        parse(kind, given)
    assert str(found.value) == told


HERE: dict[str, Any] = {"bootstrap": "localhost:9092", "topic": "flights", "archive": "/archive"}


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (archive.Options, {**HERE, "archive": "hdfs://nn/a"}, "archive='hdfs://nn/a'; allowed: " + LOCATION),
        (archive.Options, {**HERE, "archive": Path("/a")}, f"archive={Path('/a')!r}; allowed: {LOCATION}"),
        (archive.Options, {**HERE, "commit_records": 0}, "commit_records=0; allowed: a whole number, 1 or more"),
        (archive.Options, {**HERE, "continuous": "yes"}, "continuous='yes'; allowed: true or false"),
        (
            restore.Options,
            {**HERE, "from_time": datetime(2013, 1, 31, 6, 30)},
            "from_time=datetime.datetime(2013, 1, 31, 6, 30); allowed: a time with its time zone, such as ",
        ),
        (verify.Options, {**HERE, "match": "colour"}, "match='colour'; allowed: offset or order"),
        (
            skew.Options,
            {"bootstrap": "localhost:9092", "report": "/r", "topics": "flights"},
            "topics='flights'; allowed: a list with commas, in which each item is a topic's name",
        ),
    ],
)
def test_options_made_in_a_notebook_are_checked_like_command_line_options(
    kind: type[Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadOption) as found:
        kind(**given)
    assert str(found.value).startswith(told)


def test_a_notebook_may_give_times_as_text_and_lists_as_tuples() -> None:
    when = datetime(2013, 1, 31, 6, 30, tzinfo=UTC)
    as_text: Any = "2013-01-31T06:30:00Z"
    assert restore.Options(**HERE, from_time=when).from_time == when
    assert restore.Options(**HERE, from_time=as_text).from_time == when
    several: Any = ("flights", "orders")
    assert skew.Options(bootstrap="localhost:9092", report="/r", topics=several).topics == ["flights", "orders"]


def test_the_list_names_each_job_with_its_options() -> None:
    told = listing()
    assert all(name in told for name in JOBS)
    assert "topic= archive= bootstrap= [catalog=] [namespace=barnabas] [commit_records=5000000]" in told


def test_a_bad_option_is_refused_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "archive", "--option", "topic=a b"]) == EXIT_USAGE
    assert "--option topic=a b; allowed: a topic's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["run", "nothing"], ["run", "archive", "--master", "here"], ["run", "archive", "--conf", "a=b"], []]
)
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("usage: barnabas jobs")


def test_jars_with_another_checksum_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for jar in JARS:
        (tmp_path / jar.file).write_bytes(b"something else")
    assert main(["fetch-jars", "--jars", str(tmp_path)]) == EXIT_FAILED
    assert f"{tmp_path / JARS[0].file} has the SHA-256 " in capsys.readouterr().err


def test_a_machine_without_java_gets_the_name_of_the_missing_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConnectorMissing, match="the program `java` is not installed; Spark needs Java 17 or later"):
        connector.java()
    with pytest.raises(ConnectorMissing, match="the program `java` is not installed"):
        jars(tmp_path / "jars")
