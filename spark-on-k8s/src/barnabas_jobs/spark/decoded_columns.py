"""Keys and values that begin with the number of a schema, which become the columns `decoded_key` and `decoded_value`.

Executors decode them in Python, with the schemas that the driver sends, and ask nobody. A record whose key or value
does not fit has null in both columns, and the reason in the column `rejected`; key and value stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from barnabas_jobs.planning.columns import IncompatibleColumns, check_readable, merged
from barnabas_jobs.planning.columns_of_schemas import values_of
from barnabas_jobs.planning.errors import Refused
from barnabas_jobs.spark.records import REJECTED
from barnabas_registry.content import HEAD_BYTES, CannotDecode, schema_id_of
from barnabas_registry.schemas import Schema

PartName = Literal["key", "value"]
PARTS: Final[Sequence[PartName]] = ("key", "value")
PIECE_BYTES: Final = 4 << 20
"""The size of keys and values that are decoded at once; what they become may need many times as much memory."""


class Part(NamedTuple):
    """The keys or the values of a topic: the type of their column, and the schemas of their subject by number.

    `message` names the message type of Protobuf.
    """

    name: PartName
    subject: str
    type: pa.DataType
    schemas: Mapping[int, Schema]
    message: str | None

    @property
    def column(self) -> str:
        """The name of the column."""
        return f"decoded_{self.name}"


def part_of(
    name: PartName,
    subject: str,
    latest: Schema,
    schemas: Mapping[int, Schema],
    message: str | None,
    present: pa.DataType | None,
) -> Part | None:
    """Return the keys or values whose column has the fields of the latest schema and those of the table's column.

    Return None if the schema has no field. `present` is the type of the table's column, if it has one. Raises Refused
    if the latest schema cannot be used, or if it does not go with the table.
    """
    about = f"{subject}: the latest schema, {latest.schema_id},"
    try:
        wanted = values_of(latest, message).type
        if wanted is None:
            return None
        kind = wanted if present is None else merged(f"decoded_{name}", present, wanted)
    except CannotDecode as error:
        raise Refused(f"{about} cannot be used: {error}") from error
    except IncompatibleColumns as error:
        raise Refused(
            f"{about} does not go with the table: {error}. Register a schema that does, or archive into another "
            "namespace."
        ) from error
    return Part(name, subject, kind, schemas, message)


class DecodedColumns(NamedTuple):
    """The columns of a topic's decoded keys and values, and the column with the reason why a record has none."""

    parts: Sequence[Part]

    @property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow."""
        return pa.schema([*((each.column, each.type) for each in self.parts), (REJECTED, pa.string())])

    def added(self, records: DataFrame) -> DataFrame:
        """Return the records with these columns."""
        columns = StructType([*records.schema.fields, *from_arrow_schema(self.arrow).fields])
        return records.mapInArrow(partial(_decoded, tuple(self.parts)), columns)


def _decoded(parts: Sequence[Part], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    readers = [_Reader(each) for each in parts]
    for batch in batches:
        for piece in _pieces(batch):
            yield _with_columns(piece, readers)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, in batches with about PIECE_BYTES of keys and values."""
    lengths = (pc.fill_null(pc.binary_length(batch.column(name)), 0).to_pylist() for name in PARTS)
    first, size = 0, 0
    for row, (key, value) in enumerate(zip(*lengths, strict=True)):
        size += key + value
        if size > PIECE_BYTES:
            yield batch.slice(first, row + 1 - first)
            first, size = row + 1, 0
    if first < batch.num_rows:
        yield batch.slice(first)


def _with_columns(batch: pa.RecordBatch, readers: Sequence["_Reader"]) -> pa.RecordBatch:
    reasons = [""] * batch.num_rows
    read = [each.values(batch.column(each.part.name).to_pylist(), reasons) for each in readers]
    for values in read:
        values[:] = [None if reason else value for value, reason in zip(values, reasons, strict=True)]
    columns = [pa.array(values, each.part.type) for values, each in zip(read, readers, strict=True)]
    why = pa.array([reason or None for reason in reasons], pa.string())
    names = [*batch.schema.names, *(each.part.column for each in readers), REJECTED]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns, why], names=names)


class _Reader:
    """The reader of one part."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._by_id: dict[int, Callable[[bytes], Any]] = {}

    def values(self, given: Sequence[bytes | None], reasons: list[str]) -> list[Any]:
        """Return the values, None for those that cannot be read; add to the reasons why."""
        values: list[Any] = []
        for row, each in enumerate(given):
            try:
                values.append(None if each is None else self._value(each))
            except CannotDecode as error:
                values.append(None)
                reasons[row] += f"{'; ' if reasons[row] else ''}{self.part.name}: {error}"
        try:
            pa.array(values, self.part.type)
        except Exception:  # One value is enough; the rows are tried one by one to find it.
            self._check_each(values, reasons)
        return values

    def _check_each(self, values: list[Any], reasons: list[str]) -> None:
        for row, value in enumerate(values):
            try:
                pa.array([value], self.part.type)
            except Exception as error:  # Values may be anything, and Arrow raises what it likes.
                values[row] = None
                reasons[row] += f"{'; ' if reasons[row] else ''}{self.part.name}: {type(error).__name__}: {error}"

    def _value(self, given: bytes) -> Any:
        schema_id = schema_id_of(given)
        if schema_id is None:
            raise CannotDecode("it does not begin with the byte 0 and the number of a schema")
        try:
            read = self._by_id.get(schema_id) or self._by_id.setdefault(schema_id, self._read_by(schema_id))
            return read(given[HEAD_BYTES:])
        except (CannotDecode, IncompatibleColumns) as error:
            raise CannotDecode(f"schema {schema_id}: {error}") from error
        except Exception as error:  # Bytes may be anything, and the libraries raise what they like.
            raise CannotDecode(
                f"schema {schema_id}: the bytes do not have this schema: {type(error).__name__}: {error}"
            ) from error

    def _read_by(self, schema_id: int) -> Callable[[bytes], Any]:
        """Return the function that reads by a schema, whose values must go into the column."""
        schema = self.part.schemas.get(schema_id)
        if schema is None:
            raise CannotDecode(f"it is no version of the subject {self.part.subject}")
        found = values_of(schema, self.part.message)
        if found.type is not None:
            check_readable(self.part.column, found.type, self.part.type)
        return found.read
