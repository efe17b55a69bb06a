"""The table of jobs and their options as JSON, for the Kubernetes operator, which has no Spark.

`python -m barnabas_jobs.app.job_table FILE` writes the table.
"""

import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from barnabas_jobs.app.run import JOBS
from barnabas_jobs.planning.options import allowed, entry_pattern

TYPES: Final[dict[type[inspect.Type], str]] = {inspect.BoolType: "boolean", inspect.DateTimeType: "time"}
"""The type names of booleans and times in the table of jobs; `_schema` writes every unknown type as `string`."""


def job_table() -> str:
    """Return the jobs as JSON: each with its summary, its options and the rules between options.

    Each option says whether it is required and which values are allowed.
    """
    table = {name: _entry(job.summary, job.load().Options) for name, job in sorted(JOBS.items())}
    return msgspec.json.format(msgspec.json.encode(table), indent=1).decode() + "\n"


def _entry(summary: str, options: Any) -> dict[str, Any]:
    entry = {"summary": summary, "options": {each.name: _option(each) for each in msgspec.structs.fields(options)}}
    return {**entry, "rules": options.RULES} if options.RULES else entry


def _option(field: Any) -> dict[str, Any]:
    shape = _schema(inspect.type_info(field.type))
    pattern = entry_pattern(field.type)
    of_entries = {} if pattern is None else {"type": "map", "pattern": pattern}
    return {"required": field.required, "allowed": allowed(field.type), **shape, **of_entries}


def _schema(kind: inspect.Type) -> dict[str, Any]:
    """Return the type of an option's value, and its restrictions: bounds, a pattern or choices.

    For a list, return the type and the restrictions of its items.
    """
    match kind:
        case inspect.Metadata(type=inner):
            return _schema(inner)
        case inspect.UnionType(types=types):
            return _schema(types[0])
        case inspect.ListType(item_type=item):
            return {**_schema(item), "list": True}
        case inspect.LiteralType(values=values):
            return {"type": "string", "choices": list(values)}
        case inspect.IntType(ge=low, le=high):
            return {"type": "integer"} | _given(minimum=low, maximum=high)
        case inspect.FloatType(ge=low, le=high):
            return {"type": "number"} | _given(minimum=low, maximum=high)
        case inspect.StrType(pattern=pattern):
            return {"type": "string"} | _given(pattern=pattern)
    return {"type": TYPES.get(type(kind), "string")}


def _given(**bounds: object) -> dict[str, object]:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def main() -> None:
    """Write the table of jobs to the file that the first command-line argument names."""
    Path(sys.argv[1]).write_text(job_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
