"""Kubernetes quantities: `500m`, `2`, `512Mi`, `10Gi`."""

import re
from decimal import Decimal
from typing import Final

_PARTS: Final = re.compile(r"([0-9.]+)([a-zA-Z]*)")
_BINARY: Final = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTP", 1)}
_DECIMAL: Final = {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTP", 1)}
FACTORS: Final = {"": Decimal(1), "m": Decimal("0.001"), **_BINARY, **_DECIMAL}


def quantity_value(text: str) -> Decimal:
    """What a quantity that its type allows stands for."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None, text
    return Decimal(parts[1]) * FACTORS[parts[2]]
