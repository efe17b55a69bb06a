"""The admission review of a new MaintenanceJob, as a pure function."""

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.resources.maintenance_job import MaintenanceJob


def review_run(wanted: MaintenanceJob, _before: MaintenanceJob | None, _context: AdmissionContext) -> Verdict:
    """Return the problems that would make the job fail; after its creation, a MaintenanceJob cannot be corrected."""
    return Verdict("; ".join(run_problems(wanted.spec)) or None)
