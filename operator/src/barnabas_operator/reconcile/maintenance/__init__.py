"""MaintenanceJobs: a worker for those of a Cluster beside the rounds over it."""
