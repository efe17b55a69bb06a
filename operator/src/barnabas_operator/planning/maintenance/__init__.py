"""Runs of maintenance jobs: what may run, what comes next, and what their status says. Pure."""
