"""Numbers of a status: rounded, so that it seldom changes. Pure."""

from typing import Final

DIGITS: Final = 2


def shown(value: float) -> int:
    """To two significant digits; a whole number."""
    whole = round(value)
    return round(whole, min(0, DIGITS - len(str(abs(whole)))))
