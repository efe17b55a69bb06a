"""The table of jobs and their options as JSON, for the Kubernetes operator, which has no Spark.

`python -m barnabas_jobs.app.job_table FILE` writes the table.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from barnabas_jobs.app.run import JOBS
from barnabas_jobs.planning.options import allowed, json_schema

TYPES: Final = {"object": "map", "date-time": "time"}
"""The names in the table of jobs for types and formats of JSON Schema that have another name there."""
RESTRICTIONS: Final = ("minimum", "maximum", "pattern")


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
    return {"required": field.required, "allowed": allowed(field.type), **_shape(json_schema(field.type))}


def _shape(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of an option's value, and its restrictions: bounds, a pattern or choices.

    For a list, return the type and the restrictions of its items.
    """
    if "items" in schema:
        return {**_shape(schema["items"]), "list": True}
    if "enum" in schema:
        return {"type": "string", "choices": schema["enum"]}
    kind = schema.get("format", schema["type"])
    return {"type": TYPES.get(kind, kind)} | {each: schema[each] for each in RESTRICTIONS if each in schema}


def main() -> None:
    """Write the table of jobs to the file that the first command-line argument names."""
    Path(sys.argv[1]).write_text(job_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
