"""Coordinators: consumer groups with their offsets, and producer ids. Called by the handlers."""
