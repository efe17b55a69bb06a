"""The reconciliation of MaintenanceJobs, in a background worker for each Cluster."""
