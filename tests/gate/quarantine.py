"""Tests that failed and whose cause has not been found yet."""

import tomllib
from pathlib import Path
from typing import Final

QUARANTINE: Final = Path(__file__).with_name("quarantine.toml")


def read_quarantine(file: Path = QUARANTINE) -> dict[str, dict[str, str]]:
    """Return the date and the symptom of each test by its id."""
    return tomllib.loads(file.read_text(encoding="utf-8"))
