"""Writes files that exist whole or not at all, whenever the writer is killed."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file in an existing folder. A killed writer leaves `NAME.PID.new`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
