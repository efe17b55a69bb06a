"""Archives whose catalog is on a server: PostgreSQL, a REST catalog of Apache Iceberg, and AWS Glue by moto."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_servers import postgresql, rest_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from test_archive_tables import FLIGHTS, archive, join, with_lost_answer

from barnabas_jobs.files.archive_tables import ArchiveTables
from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.files.table_writer import OtherRun, TableWriter, begin
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.errors import JobFailed

Catalog = dict[str, str]
GLUE = {"glue.region": "us-east-1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}


# `make proof-archive` runs what needs PostgreSQL and Apache Iceberg's catalog.
proof = pytest.mark.soak(only=True)


@pytest.fixture(scope="module", params=[pytest.param("sql", marks=proof), pytest.param("rest", marks=proof), "glue"])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """The properties of a catalog on a running server."""
    folder = tmp_path_factory.mktemp("catalog")
    if request.param == "sql":
        with postgresql() as server:
            yield {"type": "sql", "uri": server.uri}
    elif request.param == "rest":
        with rest_catalog(folder) as uri:
            yield {"type": "rest", "uri": uri}
    else:
        yield {"type": "glue", "glue.endpoint": request.getfixturevalue("s3_endpoint"), **GLUE}


def writer_at(folder: Path, catalog: Catalog) -> TableWriter:
    """Begin a run, as `archive` does; each test has a namespace of its own in the catalog."""
    namespace = re.sub("[^a-z0-9]", "", folder.name.lower())
    tables = ArchiveTables(str(folder), catalog, namespace, LocalFolder(str(folder)))
    writer = begin(tables, FLIGHTS, lambda: 100.0)
    writer.recover_rows()
    writer.remove_left_over(writer.run_folders(), 2, {})
    return writer


def offsets(writer: TableWriter) -> list[int]:
    """Return the offsets of all records."""
    writer.data.refresh()
    return sorted(writer.data.scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())


def test_runs_and_compact_commit_in_turn_and_the_slower_of_two_runs_commits_nothing(
    tmp_path: Path, catalog: Catalog
) -> None:
    one, other = writer_at(tmp_path, catalog), writer_at(tmp_path, catalog)
    archive(one, OffsetRange(0, 0, 3))
    with pytest.raises(OtherRun, match="another run has archived this topic"):
        archive(other, OffsetRange(0, 0, 2))
    archive(one, OffsetRange(0, 3, 5))
    join(one.data, 1000)
    archive(one, OffsetRange(0, 5, 6))
    again = writer_at(tmp_path, catalog)
    assert (again.head, offsets(again)) == (one.head, list(range(6)))
    assert again.archived().spans() == [OffsetRange(0, 0, 6)]


def test_a_commit_whose_answer_is_lost_counts_once(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lost_answer(monkeypatch, CommitStateUnknownException("no answer"), before=False)
    writer = writer_at(tmp_path, catalog)
    archive(writer, OffsetRange(0, 0, 3))
    archive(writer, OffsetRange(0, 3, 5))
    assert offsets(writer) == list(range(5))


@proof
def test_a_catalog_that_goes_away_fails_the_run_and_the_next_run_archives_again(tmp_path: Path) -> None:
    with postgresql() as server:
        writer = writer_at(tmp_path, {"type": "sql", "uri": server.uri})
        archive(writer, OffsetRange(0, 0, 3))
        server.kill()
        with pytest.raises(JobFailed, match="table=flights: the table cannot be read: OperationalError"):
            archive(writer, OffsetRange(0, 3, 5))
        server.start()
        writer = writer_at(tmp_path, {"type": "sql", "uri": server.uri})
        archive(writer, OffsetRange(0, 3, 4))
        assert offsets(writer) == list(range(4))


@pytest.mark.parametrize(
    "given",
    [
        {"type": "rest", "uri": "http://127.0.0.1:1"},
        {"type": "sql", "uri": "postgresql://archive@/postgres?host=/nowhere"},
        {"type": "glue", "glue.endpoint": "http://127.0.0.1:1", "glue.max-retries": "1", **GLUE},
        {"type": "rest"},
        {"type": "nessie", "uri": "http://127.0.0.1:1"},
    ],
    ids=["rest", "sql", "glue", "no address", "no such type"],
)
def test_a_catalog_that_cannot_be_reached_is_named(tmp_path: Path, given: Catalog) -> None:
    with pytest.raises(
        JobFailed, match=f"archive={tmp_path}: the (catalog cannot be opened|namespace .* be created): "
    ):
        writer_at(tmp_path, given)
