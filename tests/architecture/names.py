"""Checks that no two public classes or types of a package share a name, so that a name alone is clear to a reader."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("broker/src", "operator/src")
"""The checked sources. Modules of jobs are separate programs: each has its `Options` and its `Result`."""


def public_types(path: Path) -> Iterator[tuple[str, int]]:
    """Yield names and lines of the public classes and type aliases of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if makes_a_type(value):
                pass
            case _:
                continue
        if name[0].isupper() and not name.isupper():
            yield name, node.lineno


def makes_a_type(value: ast.expr) -> bool:
    """True if it is `Mapping[...]` or `A | B`: `Outer.Inner` is a short name for its file, and a TypeVar has no meaning
    anywhere else."""
    return isinstance(value, ast.Subscript | ast.BinOp)


def same_names(package: Path) -> Iterator[str]:
    """Yield complaints about one package, each `name: where it is`."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name, line in public_types(path):
            places[name].append(f"{path.relative_to(ROOT).as_posix()}:{line}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{package.name} has {len(found)} types of the name {name}, one allowed: {', '.join(found)}"


def main() -> int:
    """Print every complaint; return 1 if there is any."""
    packages = [package for source in SOURCES for package in sorted((ROOT / source).iterdir()) if package.is_dir()]
    complaints = [line for package in packages for line in same_names(package)]
    print("\n".join(complaints) or "names: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
