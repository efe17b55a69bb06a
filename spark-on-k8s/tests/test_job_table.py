"""What the operator knows of jobs is what the jobs' own types say."""

from pathlib import Path

from barnabas_jobs.app.job_table import job_table

FILE = Path(__file__).parents[2] / "operator/src/barnabas_operator/resources/job_table.json"


def test_the_table_of_jobs_is_made_of_their_options() -> None:
    assert FILE.read_text(encoding="utf-8") == job_table(), "`make job-table crds` writes it anew"
