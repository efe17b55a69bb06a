"""Runs of maintenance jobs: what may run, what comes next, and what is told of it. Pure."""
