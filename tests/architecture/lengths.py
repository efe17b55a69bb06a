"""Bounds the length of functions and modules. The bounds only ever ratchet down."""

import ast
import sys
from pathlib import Path

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 450
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("broker/src", "operator/src", "bench", "examples", "tests")


def too_long(path: Path) -> list[str]:
    """Complaints about one module, each `file:line what`."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    lines = text.count("\n")
    complaints = [f"{name}: {lines} lines; {MODULE_LINES_MAX} allowed"] if lines > MODULE_LINES_MAX else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                complaints.append(f"{name}:{node.lineno} {node.name}: {length} lines; {FUNCTION_LINES_MAX} allowed")
    return complaints


def main() -> int:
    """Prints every complaint; 1 where there is any."""
    complaints = [
        line for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for line in too_long(path)
    ]
    print("\n".join(complaints) or "lengths: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
