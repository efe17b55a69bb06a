"""Tests that failed and whose cause is not found yet."""

import tomllib
from pathlib import Path
from typing import Final

QUARANTINE: Final = Path(__file__).with_name("quarantine.toml")


def read_quarantine(file: Path = QUARANTINE) -> dict[str, dict[str, str]]:
    """By the id of a test: since when, and what it shows."""
    return tomllib.loads(file.read_text(encoding="utf-8"))
