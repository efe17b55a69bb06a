"""The time of day, as Kubernetes writes it."""

from datetime import UTC, datetime


def now() -> str:
    """RFC 3339 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
