"""Bounds the length of functions, modules and classes. The bounds only ever ratchet down."""

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
    """Lines of a function and of a module; public methods of a class, properties with them."""

    function_lines: int
    module_lines: int
    public_methods: int


LIMITS = Limits(function_lines=45, module_lines=400, public_methods=25)


def too_long(path: Path) -> Iterator[str]:
    """Complaints about one module, each `file:line what`."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    lines = text.count("\n")
    if lines > LIMITS.module_lines:
        yield f"{name}: {lines} lines; {LIMITS.module_lines} allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LIMITS.function_lines:
                yield f"{name}:{node.lineno} {node.name}: {length} lines; {LIMITS.function_lines} allowed"
        if isinstance(node, ast.ClassDef) and len(public_methods(node)) > LIMITS.public_methods:
            count = len(public_methods(node))
            yield f"{name}:{node.lineno} {node.name}: {count} public methods; {LIMITS.public_methods} allowed"


def public_methods(node: ast.ClassDef) -> set[str]:
    """What the class itself defines, by name; tests in a class are no methods that anybody calls."""
    functions = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {name for name in functions if not name.startswith(("_", "test_"))}


def main() -> int:
    """Prints every complaint; 1 where there is any."""
    complaints = [
        line for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for line in too_long(path)
    ]
    print("\n".join(complaints) or "lengths: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
