"""Kubernetes quantities: `500m`, `2`, `512Mi`, `10Gi`, `1e9`, and plain integers."""

import re
from decimal import Decimal
from typing import Annotated, Final

from msgspec import Meta

ALLOWED: Final = "a quantity such as 500m, 2, 512Mi or 10Gi"
_PARTS: Final = re.compile(r"([0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))")
_BINARY: Final = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_SMALL: Final = {letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)}
_BYTES: Final = re.compile(r"([0-9.]+) ?([kKMGTPE])i?[bB]?")
FACTORS: Final = {"": Decimal(1), **_SMALL, **_BINARY, **_DECIMAL}


def quantity_value(written: str | int) -> Decimal:
    """Return the value of a quantity, which must be valid, such as 0.5 for `500m`."""
    parts = _PARTS.fullmatch(str(written))
    assert parts is not None, written
    factor = FACTORS[parts[3]] if parts[2] is None else Decimal(10) ** int(parts[2])
    return Decimal(parts[1]) * factor


def quantity_hint(written: object) -> str:
    """Return a hint for texts such as `10GB` or `10 Gi`; empty for any other text."""
    parts = _BYTES.fullmatch(str(written))
    if parts is None:
        return ""
    amount, unit = parts[1], parts[2].upper()
    return f"; write {amount}{unit}i or {amount}{'k' if unit == 'K' else unit}"


def shown_amount(written: str | int) -> str:
    """Return the amount as text. A plain number is followed by `(bytes)`, in case the user forgot to write a unit."""
    return f"{written} (bytes)" if str(written).isdecimal() else str(written)


QuantityText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=32,
        pattern=r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$",
    ),
]
Quantity = Annotated[
    Annotated[int, Meta(ge=0)] | QuantityText,
    Meta(description=ALLOWED, extra={"allowed": ALLOWED, "hint": quantity_hint}),
]
