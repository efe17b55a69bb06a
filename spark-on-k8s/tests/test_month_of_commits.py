"""An archive with a commit each minute for a month: `compact` joins its files, and a restore then begins soon."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import pyarrow as pa
import pytest
from buckets import Bucket, new_bucket
from jobs_world import QUIET_S, World
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyarrow import parquet
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.jobs import compact, restore
from barnabas_jobs.planning.compaction import KEEP_MS
from barnabas_jobs.planning.ledger import ArchivedRange, Entry
from harness.deadline import wait_for
from harness.soak import took

COMMITS: Final = 30 * 24 * 60
PARTITIONS: Final = 3
TOPIC_ID: Final = "A" * 22
BEGINS_SECONDS_MAX: Final = 120.0
REQUESTS_MAX: Final = 100
FIRST_MS: Final = 1_700_000_000_000
TYPES: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@pytest.mark.soak(only=True)
def test_a_month_of_commits_is_compacted_and_its_restore_begins_within_two_minutes(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)  # The archive is only read from here on.
        _make_archive(world)
    began_s = time.monotonic()
    options = compact.Options(topic=world.topic, archive=world.location)
    joined = compact.run(spark, options)
    compact.run(spark, options, lambda: time.time() + KEEP_MS / 1000)
    print(f"compact: {joined.files_before} files into {joined.files_after}, {time.monotonic() - began_s:.0f} s")
    assert joined.joined_commits == COMMITS
    took("the first record from a disk", _seconds_to_first_record(spark, world, world.location), BEGINS_SECONDS_MAX)
    with counting_server() as (endpoint, requests):
        bucket = new_bucket(endpoint, spark)
        _upload(world.folder, bucket)
        requests.clear()
        took(
            "the first record from a bucket",
            _seconds_to_first_record(spark, world, bucket.location, requests),
            BEGINS_SECONDS_MAX,
        )
        print(f"requests before the first record: {len(requests)}: {Counter(requests).most_common()}")
        assert len([each for each in requests if "data" not in each]) <= REQUESTS_MAX


@contextmanager
def counting_server() -> Iterator[tuple[str, list[str]]]:
    """Run an S3 server; yield its address and a list of the method and the archive's folder of each request."""
    whole = DomainDispatcherApplication(create_backend_app)
    requests: list[str] = []

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        requests.append(f"{environ['REQUEST_METHOD']} {_folder(environ)}")
        return whole(environ, start_response)

    server = make_server("127.0.0.1", 0, counting, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.port}", requests
    finally:
        server.shutdown()
        serving.join()


def _folder(environ: dict[str, Any]) -> str:
    """Return the folder of the archive in a request's path, or in the prefix of a listing."""
    key = dict(parse_qsl(environ["QUERY_STRING"])).get("prefix") or "/".join(environ["PATH_INFO"].split("/")[2:])
    return "/".join(key.split("/")[2:3])


def _upload(folder: Path, bucket: Bucket) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith("."):
            key = f"archives/one/{file.relative_to(folder)}"
            bucket.client.put_object(Bucket=bucket.name, Key=key, Body=file.read_bytes())


def _make_archive(world: World) -> None:
    folder = ArchiveFolder(LocalFolder(world.location))
    with folder.written_by_us():
        for number in range(COMMITS):
            partition, offset = number % PARTITIONS, number // PARTITIONS
            timestamp_ms = FIRST_MS + number * 60_000
            day = time.strftime("%Y-%m-%d", time.gmtime(timestamp_ms / 1000))
            run = folder.new_run(TOPIC_ID, number)
            file = Path(folder.store.url(run)) / f"date={day}" / f"partition={partition}" / "part-0.parquet"
            file.parent.mkdir(parents=True)
            row = {
                "offset": offset,
                "timestamp": timestamp_ms * 1000,
                "timestampType": 0,
                "key": b"key",
                "value": b"value",
                "headers": None,
            }
            parquet.write_table(pa.Table.from_pylist([row], TYPES), file, write_page_checksum=True)
            folder.commit(
                Entry(
                    number=number,
                    topic=world.topic,
                    topic_id=TOPIC_ID,
                    committed_at_ms=timestamp_ms,
                    partitions=[ArchivedRange(partition=partition, start=offset, end=offset + 1, records=1)],
                    files=folder.synced(run),
                    topic_partitions=PARTITIONS,
                )
            )


def _seconds_to_first_record(
    spark: SparkSession, world: World, location: str, requests: list[str] | None = None
) -> float:
    """Return the seconds from the start of a restore to its first record; `requests` keeps those made until then."""
    into = f"{world.topic}-from-{'disk' if requests is None else 'bucket'}"
    chosen = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": location, "into": into, "create": True}
    began_s = time.monotonic()
    seen: list[tuple[float, list[str]]] = []

    def watch() -> None:
        wait_for(lambda: into in world.client.admin.list_topics(timeout=30).topics, seconds_max=1800)
        wait_for(lambda: sum(world.client.ends(into, each)[1] for each in range(PARTITIONS)), seconds_max=1800)
        seen.append((time.monotonic() - began_s, list(requests or ())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    restored = restore.run(spark, msgspec.convert(chosen, restore.Options), quiet_s=QUIET_S)
    watcher.join()
    assert sum(restored.written.values()) == COMMITS
    seconds, made = seen[0]
    if requests is not None:
        requests[:] = made
    return seconds
