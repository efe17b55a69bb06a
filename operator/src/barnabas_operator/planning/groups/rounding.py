"""The rounding of a status's numbers, so that it seldom changes. Pure."""

from typing import Final

DIGITS: Final = 2


def shown(value: float) -> int:
    """Return the value as a whole number of two significant digits."""
    whole = round(value)
    return round(whole, min(0, DIGITS - len(str(abs(whole)))))
