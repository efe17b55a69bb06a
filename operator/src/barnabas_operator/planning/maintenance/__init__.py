"""The planning of MaintenanceJobs: their checks, their next step, and their status."""
