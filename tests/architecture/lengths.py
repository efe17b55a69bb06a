"""Limits the length of functions, modules and classes. The limits are only ever lowered."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "broker/src",
    "broker/tests",
    "operator/src",
    "operator/tests",
    "spark-on-k8s/src",
    "spark-on-k8s/tests",
    "bench",
    "dashboards",
    "examples",
    "images",
    "tests",
)


class Limits(NamedTuple):
    """Lines of a function and of a module; public methods of a class, with properties and those of its bases."""

    function_lines: int
    module_lines: int
    public_methods: int


LIMITS = Limits(function_lines=45, module_lines=600, public_methods=25)
LARGER = {"BarnabasCluster": 27}
"""Classes that are to be divided, with their current number of methods: these numbers may only fall."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Classes = dict[str, ast.ClassDef]
"""The classes of one source folder, by name: no two of a package share one."""


class Module(NamedTuple):
    """The counted figures of a module."""

    name: str
    lines: int
    functions: list[Function]
    classes: list[ast.ClassDef]

    @classmethod
    def of(cls, path: Path) -> "Module":
        """Parse a file."""
        text = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        functions = [node for node in nodes if isinstance(node, Function)]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        return cls(path.relative_to(ROOT).as_posix(), text.count("\n"), functions, classes)


def too_long(module: Module, classes: Classes) -> Iterator[str]:
    """Yield complaints about one module, each `file:line what`."""
    if module.lines > LIMITS.module_lines:
        yield f"{module.name}: {module.lines} lines; {LIMITS.module_lines} allowed"
    for node in module.functions:
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > LIMITS.function_lines:
            yield f"{module.name}:{node.lineno} {node.name}: {length} lines; {LIMITS.function_lines} allowed"
    for found in module.classes:
        count, allowed = len(public_methods(found, classes)), LARGER.get(found.name, LIMITS.public_methods)
        if count > allowed:
            yield f"{module.name}:{found.lineno} {found.name}: {count} public methods; {allowed} allowed"


def public_methods(node: ast.ClassDef, classes: Classes) -> set[str]:
    """Return the names of the public methods of the class and its bases; test methods do not count."""
    functions = [each.name for each in node.body if isinstance(each, Function)]
    found = {name for name in functions if not name.startswith(("_", "test_"))}
    bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return found.union(*(public_methods(base, classes) for base in bases if base is not node))


def complaints(folder: Path) -> Iterator[str]:
    """Yield those about all modules of a source folder."""
    modules = [Module.of(path) for path in sorted(folder.rglob("*.py"))]
    classes = {node.name: node for module in modules for node in module.classes}
    for module in modules:
        yield from too_long(module, classes)


def main() -> int:
    """Print every complaint; 1 if there is any."""
    found = [line for folder in FOLDERS for line in complaints(ROOT / folder)]
    print("\n".join(found) or "lengths: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
