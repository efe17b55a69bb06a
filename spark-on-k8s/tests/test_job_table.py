"""The operator's table of jobs is generated from the jobs' own option types."""

from pathlib import Path

from barnabas_jobs.app.job_table import job_table

FILE = Path(__file__).parents[2] / "operator/src/barnabas_operator/resources/job_table.json"


def test_the_operators_job_table_matches_the_options_of_the_jobs() -> None:
    assert FILE.read_text(encoding="utf-8") == job_table(), "run `make job-table crds`"
