"""Files that are there whole or not at all, whenever their writer is killed."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """In a folder that exists. What a killed writer leaves is `NAME.PID.new`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
