"""Time spans as readable text."""

from typing import Final

UNITS: Final = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


def span_text(span_ms: float) -> str:
    """Return a time span in the largest unit that gives at least two: 36.0 hours, 90.0 seconds, 3 ms."""
    for name, unit_ms in UNITS:
        if span_ms >= 2 * unit_ms:
            return f"{span_ms / unit_ms:,.1f} {name}"
    return f"{span_ms:,.0f} ms"
