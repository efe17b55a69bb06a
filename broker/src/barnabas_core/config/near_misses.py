"""The hints in errors about a config: a similar name, or the plain number for a value with a unit, such as `7d`."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

ALIKE: Final = 0.75
"""The similarity from which one name is probably a typo of another."""

_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
_SECOND: Final = 1_000
_MILLISECONDS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "h": 3_600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}
_BYTES: Final[Mapping[str, int]] = {
    "B": 1,
    **{f"{letter}{tail}": 1_000**power for power, letter in enumerate("kMGT", 1) for tail in ("", "B")},
    **{f"K{tail}": 1_000 for tail in ("", "B")},
    **{f"{letter}i{tail}": 1_024**power for power, letter in enumerate("KMGT", 1) for tail in ("", "B")},
}
_UNITS: Final[Mapping[str, tuple[Mapping[str, int], int]]] = {
    ".ms": (_MILLISECONDS, 1),
    ".seconds": (_MILLISECONDS, _SECOND),
    ".minutes": (_MILLISECONDS, 60 * _SECOND),
    ".hours": (_MILLISECONDS, 3_600 * _SECOND),
    ".bytes": (_BYTES, 1),
}
"""A map from the unit suffix of a config's name, such as `.ms`, to a pair.

The first item has the units that users may write by mistake, and the second item is the unit of the config.
"""


def did_you_mean(name: str, known: Mapping[str, object], aliases: Mapping[str, str]) -> str:
    """Return `; did you mean NAME?` if `name` is in `aliases` or similar to a name in `known`; else an empty text."""
    near = [aliases[name]] if name in aliases else get_close_matches(name, known, n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def written_out(name: str, text: str) -> int | None:
    """Return a value such as `7d` or `10Mi` as a number in the setting's unit.

    Return None if the value has no known unit, or if the result is not a whole number.
    """
    units, unit = next((found for end, found in _UNITS.items() if name.endswith(end)), ({}, 1))
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is None or amount[2] not in units:
        return None
    number = float(amount[1]) * units[amount[2]] / unit
    return int(number) if number.is_integer() else None
