"""MaintenanceJobs, reconciled by a worker for each Cluster beside the rounds over it."""
