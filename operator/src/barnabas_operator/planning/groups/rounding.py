"""The rounding of numbers in a status, so that the status seldom changes."""

from typing import Final

DIGITS: Final = 2


def shown(value: float) -> int:
    """Return the value as a whole number with two significant digits."""
    whole = round(value)
    return round(whole, min(0, DIGITS - len(str(abs(whole)))))
