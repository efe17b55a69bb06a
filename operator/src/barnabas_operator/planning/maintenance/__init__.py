"""Runs of maintenance jobs: their checks, their next step, and their status. Pure."""
