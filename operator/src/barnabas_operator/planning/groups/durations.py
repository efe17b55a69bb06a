"""The durations of a spec, in seconds. Pure."""

import re
from decimal import Decimal
from typing import Final

SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")


def duration_s(text: str) -> float:
    """Return the seconds of a text such as `90s`, `1h30m` or `PT1H30M`, which the field's pattern has accepted."""
    return float(sum(Decimal(number) * SECONDS[unit] for number, unit in PART.findall(text.lower())))
