"""The review of a MaintenanceJob before it is stored. Pure."""

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.resources.maintenance_job import MaintenanceJob


def review_run(wanted: MaintenanceJob, _before: MaintenanceJob | None, _context: AdmissionContext) -> Verdict:
    """Return what its job would refuse: it could never run, for its spec never changes."""
    return Verdict("; ".join(run_problems(wanted.spec)) or None)
