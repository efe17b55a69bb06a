"""Keys and values that executors decode, and the tables that get them, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_archive_tables import FIRST_US, SPARK, tables_at, writer_at

from barnabas_jobs.files.table_writer import TableWriter
from barnabas_jobs.jobs.compact import remove_unnamed
from barnabas_jobs.planning.archived import Commit, PartitionRange
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.spark import decoded_columns
from barnabas_jobs.spark.decoded_columns import DecodedColumns, Part, _decoded, part_of
from barnabas_registry.schemas import Schema
from harness.schema_registry import avro, framed


def order(**fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    )


MONEY = ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]
FIRST = Schema(1, "AVRO", order(id="int", note="string"))
SECOND = Schema(2, "AVRO", order(id="long", price=MONEY, note="string"))
CHANGED = Schema(3, "AVRO", order(id="string"))
TOLD = "it does not begin with the byte 0 and the number of a schema"


def part(*schemas: Schema, name: Any = "value", present: pa.DataType | None = None) -> Part:
    """Return the part whose latest schema is the last one."""
    found = part_of(name, f"t-{name}", schemas[-1], {each.schema_id: each for each in schemas}, None, present)
    assert found is not None
    return found


def record(schema: Schema, **fields: Any) -> bytes:
    return framed(schema.schema_id, avro(schema.text, fields))


def decoded(parts: list[Part], *records: tuple[bytes | None, bytes | None], first: int = 0) -> pa.Table:
    """Return records as the tasks of Spark decode them."""
    rows: list[dict[str, Any]] = [
        {"partition": 0, "offset": first + number, "timestamp": FIRST_US, "key": key, "value": value, "headers": []}
        for number, (key, value) in enumerate(records)
    ]
    found = pa.Table.from_batches(_decoded(parts, pa.Table.from_pylist(rows, SPARK).to_batches()))
    assert found.schema.names == [*SPARK.names, *DecodedColumns(parts).arrow.names]
    return found


def test_values_are_read_with_the_schema_of_their_number_and_the_latest_one_gives_the_fields() -> None:
    both = part(FIRST, SECOND)
    found = decoded(
        [both],
        (None, record(FIRST, id=1, note="a")),
        (None, None),
        (None, record(SECOND, id=2**40, price=None, note="")),
    )
    assert found["decoded_value"].to_pylist() == [
        {"id": 1, "price": None, "note": "a"}, None, {"id": 2**40, "price": None, "note": ""},
    ]  # fmt: skip
    assert found["rejected"].null_count == 3


def test_a_record_that_cannot_be_decoded_is_null_in_both_columns_and_has_all_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoded_columns, "PIECE_BYTES", 20)
    key = Schema(9, "JSON", '{"type": "object", "properties": {"town": {"type": "string"}}}')
    good, odd = framed(9, b'{"town": "Oslo"}'), framed(9, b'{"town": "\\ud800"}')
    found = decoded(
        [part(key, name="key"), part(FIRST, CHANGED, name="value")],
        (good, record(CHANGED, id="x")),
        (b"plain", b"plain"),
        (odd, record(CHANGED, id="x")),
        (good, record(FIRST, id=1, note="")),
        (good, framed(7, b"")),
        (good, record(CHANGED, id="x") + b"more"),
    )
    assert found["decoded_key"].to_pylist() == [{"town": "Oslo"}, *[None] * 5]
    assert found["decoded_value"].to_pylist() == [{"id": "x"}, *[None] * 5]
    first, plain, surrogate, changed, unknown, more = found["rejected"].to_pylist()
    assert (first, plain) == (None, f"key: {TOLD}; value: {TOLD}")
    assert surrogate.startswith("key: UnicodeEncodeError: ")
    assert changed == "value: schema 1: the field decoded_value.id is int32 by the schema, and string in the table"
    assert unknown == "value: schema 7: it is no version of the subject t-value"
    assert more == "value: schema 3: 4 bytes are behind what the schema describes"


def test_a_latest_schema_that_does_not_go_with_the_table_is_refused_before_anything_is_written() -> None:
    present = pa.struct([("id", pa.int64()), ("gone", pa.bool_())])
    assert part(FIRST, present=present).type == pa.struct([*present, ("note", pa.string())])
    told = (
        "t-value: the latest schema, 3, does not go with the table: the field decoded_value.id is string by the schema"
    )
    with pytest.raises(Refused, match=f"{told}, and int64 in the table"):
        part(FIRST, CHANGED, present=present)
    with pytest.raises(Refused, match="the latest schema, 4, cannot be used: the schema is invalid"):
        part(Schema(4, "AVRO", "{"))
    assert part_of("value", "t-value", Schema(5, "AVRO", order()), {}, None, None) is None


def commit(writer: TableWriter, parts: list[Part], *values: bytes | None) -> None:
    """Commit records with these values, and those of them that cannot be decoded."""
    start, run = writer.head.ends[0] if writer.head else 0, writer.new_run()
    rows = decoded(parts, *((None, each) for each in values), first=start)
    bad = rows.filter(rows["rejected"].is_valid()).select([*SPARK.names, "rejected"])
    reasons = bad.rename_columns([*SPARK.names, "reason"])
    number = pa.array([writer.number] * bad.num_rows, pa.int64())
    files = store(writer, writer.folder(run), rows)
    rejected = (
        store(writer, writer.rejected_folder(run), reasons.append_column("commit", number)) if bad.num_rows else []
    )
    made = Commit(writer.number, run, 0, (PartitionRange(0, start, start + len(values), 1, 7, len(values)),))
    writer.commit(made, files, 1, {}, DecodedColumns(parts).arrow, rejected)


def store(writer: TableWriter, folder: str, rows: pa.Table) -> list[str]:
    """Write a file as Spark does, which stores decimals as integers, and return its name."""
    name = f"{folder}/date=2013-01-01/part-0.parquet"
    path = Path(writer._tables.store.url(name))
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path, store_decimal_as_integer=True)
    return [name]


def rows_of(folder: Path, name: str, *columns: str) -> list[dict[str, Any]]:
    table = tables_at(folder).load(name)
    assert table is not None
    found: list[dict[str, Any]] = table.scan(selected_fields=columns).to_arrow().sort_by("offset").to_pylist()
    return found


def test_tables_get_new_columns_and_rejected_records(tmp_path: Path) -> None:
    commit(writer_at(tmp_path), [part(FIRST)], record(FIRST, id=1, note="a"), b"plain")
    both = part(FIRST, SECOND, present=pa.struct([("id", pa.int32()), ("note", pa.string())]))
    commit(writer_at(tmp_path), [both], record(SECOND, id=2**40, price=None, note="b"))
    assert [each["decoded_value"] for each in rows_of(tmp_path, "flights", "offset", "decoded_value")] == [
        {"id": 1, "note": "a", "price": None}, None, {"id": 2**40, "note": "b", "price": None},
    ]  # fmt: skip
    rejected = rows_of(tmp_path, "flights$rejected", "offset", "value", "reason", "commit")
    assert rejected == [{"offset": 1, "value": b"plain", "reason": f"value: {TOLD}", "commit": 0}]
    writer = writer_at(tmp_path)
    with pytest.raises(Refused, match=r"decoded_value\.id is string by the schema, and int64 in the table"):
        writer.check_columns(DecodedColumns([part(CHANGED)]).arrow)


def test_a_run_that_dies_before_it_adds_rejected_records_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(writer_at(tmp_path), [part(FIRST)], b"one")
    writer = writer_at(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_add_rejected", dies)
        with pytest.raises(JobFailed, match="killed"):
            commit(writer, [part(FIRST)], b"two")
    assert offsets(tmp_path) == [0]
    table, tables = writer.rejected(), tables_at(tmp_path)
    assert table is not None
    assert writer.head is not None
    assert remove_unnamed(tables, table, 2**60, writer.head.run) == 0
    writer = writer_at(tmp_path)
    assert offsets(tmp_path) == [0, 1]
    commit(writer, [part(FIRST)], b"three")
    writer.data.manage_snapshots().rollback_to_snapshot(writer.data.snapshots()[0].snapshot_id).commit()
    commit(writer_at(tmp_path), [part(FIRST)], b"two")
    assert offsets(tmp_path) == [0, 1]
    assert writer_at(tmp_path).remove_left_over([], 1, {}) == 0


def dies(*_: object) -> None:
    raise JobFailed("killed")


def offsets(folder: Path) -> list[int]:
    return [each["offset"] for each in rows_of(folder, "flights$rejected", "offset")]
