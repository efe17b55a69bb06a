"""The conversion of durations in a spec to seconds."""

import re
from decimal import Decimal
from typing import Final

SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `1h30m` or `PT1H30M`; the schema has checked the format."""
    return float(sum(Decimal(number) * SECONDS[unit] for number, unit in PART.findall(text.lower())))
