"""Record values in JSON, which are parsed into columns by a schema (a JSON Schema, or Spark's DDL)."""

import json
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from barnabas_jobs.planning.errors import JobFailed

Mismatch = Literal["fail", "keep"]
CORRUPT: Final = "_corrupt_record"
PLAIN: Final[dict[str, DataType]] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
ALLOWED: Final = ", ".join((*PLAIN, "array", "object"))
DOES_NOT_FIT: Final = "does not fit the schema"


class JsonColumns(NamedTuple):
    """The columns `json` and `json_fits`; the original value stays beside them, for restores."""

    schema: StructType
    on_mismatch: Mismatch

    @property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow."""
        return to_arrow_schema(
            StructType([StructField("json", self.schema), StructField("json_fits", BooleanType())]), timezone="UTC"
        )

    def added(self, records: DataFrame) -> DataFrame:
        """Return the records with two more columns, `json` and `json_fits`.

        `json` is the parsed value, or null if the value does not fit the schema. `json_fits` is true if the value fits
        the schema, and null if the record has no value. With `on_mismatch=fail`, Spark fails at the first value that
        does not fit.
        """
        whole = StructType([*self.schema.fields, StructField(CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = records.withColumn("json", F.from_json(F.col("value").cast("string"), whole, options))
        json_column = F.col("json")
        misfit = json_column.isNull() | json_column[CORRUPT].isNotNull() | _lacking(json_column, self.schema)
        fits = F.when(F.col("value").isNotNull(), ~F.coalesce(misfit, F.lit(True)))
        if self.on_mismatch == "fail":
            fits = F.when(fits, True).when(F.col("value").isNotNull(), F.raise_error(_mismatch()))
        judged = parsed.withColumn("json_fits", fits)
        return judged.withColumn("json", F.when(F.col("json_fits"), json_column.dropFields(CORRUPT)))


def read_schema(path: str) -> StructType:
    """Read the schema from a file, as a JSON Schema of an object or as Spark's DDL (`a INT NOT NULL, b STRING`).

    Raises JobFailed if the file cannot be read or has neither form.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        found: DataType
        if not text.startswith("{"):
            found = StructType.fromDDL(text)
        else:
            found = _type(path, "the root", json.loads(text))
    except OSError as error:
        raise JobFailed(f"schema={path}: the file cannot be read: {error.strerror}") from error
    except (ValueError, PySparkException) as error:
        raise JobFailed(
            f"schema={path}: the file is neither a JSON Schema nor Spark's DDL (such as `a INT NOT NULL, b STRING`):"
            f" {error}"
        ) from error
    if not isinstance(found, StructType):
        raise JobFailed(f"schema={path}: the root is {found.simpleString()}; allowed: an object")
    return found


def _type(path: str, where: str, schema: Any) -> DataType:
    kinds = _kinds(schema)
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" and isinstance(schema.get("properties"), dict):
        required = schema.get("required", [])
        return StructType([_field(path, name, each, name in required) for name, each in schema["properties"].items()])
    if kind == "array" and "items" in schema:
        return ArrayType(_type(path, f"an item of {where}", schema["items"]))
    if kind in PLAIN:
        return PLAIN[kind]
    raise JobFailed(
        f"schema={path}: {where} is {json.dumps(schema)[:200]}; allowed: one type of {ALLOWED}, alone or with null; "
        "an object needs `properties`, and an array needs `items`"
    )


def _field(path: str, name: str, schema: Any, required: bool) -> StructField:
    return StructField(name, _type(path, f"{name!r}", schema), not required or "null" in _kinds(schema, null=True))


def _kinds(schema: Any, *, null: bool = False) -> list[str]:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    named = kinds if isinstance(kinds, list) else [str(kinds)]
    return [each for each in named if null or each != "null"]


def _lacking(value: Column, kind: DataType) -> Column:
    """Return a column that is true if a required field is null, at any depth.

    Spark itself takes all fields of JSON for optional.
    """
    lacking = F.lit(False)
    if isinstance(kind, StructType):
        for field in kind.fields:
            inner = value.getField(field.name)
            absent = F.lit(False) if field.nullable else value.isNotNull() & inner.isNull()
            lacking = lacking | absent | _lacking(inner, field.dataType)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType | ArrayType):
        element = kind.elementType
        lacking = F.coalesce(F.exists(value, lambda each: _lacking(each, element)), F.lit(False))
    return lacking


def _mismatch() -> Column:
    place = (F.lit("partition "), F.col("partition"), F.lit(" offset "), F.col("offset"))
    return F.concat(*place, F.lit(f" {DOES_NOT_FIT}: "), F.substring(F.col("value").cast("string"), 1, 200))
