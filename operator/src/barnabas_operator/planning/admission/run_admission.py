"""The review of a MaintenanceJob before it is stored. Pure."""

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.resources.maintenance_job import MaintenanceJob


def review_run(wanted: MaintenanceJob, _before: MaintenanceJob | None, _context: AdmissionContext) -> Verdict:
    """Return the problems that its job would refuse: such a run could never succeed, as its spec never changes."""
    return Verdict("; ".join(run_problems(wanted.spec)) or None)
