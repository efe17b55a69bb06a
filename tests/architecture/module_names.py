"""Checks that no two test modules share a name: pytest puts their folders on one path, so one would hide the other."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ("broker/tests", "operator/tests", "spark-on-k8s/tests", "tests")
IMPORT: Final = re.compile(r"^(?:from|import) ([a-z_]+)", re.MULTILINE)
OF_PYTEST: Final = frozenset({"conftest", "__init__", "__main__", "__pycache__"})


def importable(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what a folder on the path has: modules, and folders with modules."""
    for path in folder.iterdir():
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py"))):
            yield path.stem, path


def imported_names() -> Iterator[str]:
    """Yield the names by which tests import modules on the path, such as `drivers` of `from drivers.one import`."""
    for tests in TESTS:
        for path in (ROOT / tests).rglob("*.py"):
            yield from IMPORT.findall(path.read_text(encoding="utf-8"))


def same_names() -> Iterator[str]:
    """Yield complaints, each with the places of one name."""
    folders = {path.parent for tests in TESTS for path in (ROOT / tests).rglob("test_*.py")}
    places: dict[str, list[str]] = defaultdict(list)
    for folder in sorted(folders):
        for name, path in sorted(importable(folder)):
            if name not in OF_PYTEST and path not in folders:
                places[name].append(path.relative_to(ROOT).as_posix())
    imported = set(imported_names())
    for name, found in sorted(places.items()):
        if len(found) > 1 and (name.startswith("test_") or name in imported):
            yield f"tests import {name} from {len(found)} places, one allowed: {', '.join(found)}"


def main() -> int:
    """Print every complaint; return 1 if there is any."""
    complaints = list(same_names())
    print("\n".join(complaints) or "names of test modules: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
