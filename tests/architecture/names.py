"""Checks that names are clear to a reader: no two public types of a package share one, and none has a private word."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("broker/src", "operator/src")
"""The checked sources. Modules of jobs are separate programs: each has its `Options` and its `Result`."""

NAMED_SOURCES: Final = (*SOURCES, "spark-on-k8s/src")
"""The sources whose names are checked for private words."""
PRIVATE_WORDS: Final = {
    "anew": "again, or a verb such as restart or rewrite",
    "bury": "delete",
    "buried": "deleting or tombstones",
    "chore": "periodic task",
    "chores": "periodic tasks",
    "hear": "receive or watch",
    "heard": "received, read or known",
    "look": "read, poll or check",
    "looked": "read, observed or checked",
    "looker": "poller",
    "looks": "polls, checks or observations",
    "respond": "answer",
    "responds": "answers",
    "ring": "signal",
    "said": "message, text or event",
    "tell": "report, send, notify or log",
    "told": "reported, sent or logged",
}
"""The words that only this project used in names, each with the words of Kafka and Kubernetes for it."""


def defined_names(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names that a module defines, with their lines; the first is its own name."""
    yield path.stem, 1
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.alias(asname=str(name), lineno=line):
                yield name, line
            case _:
                continue


def private_words(source: Path) -> Iterator[str]:
    """Yield complaints about names with private words, each `file:line: name: what to use`."""
    for path in sorted(source.rglob("*.py")):
        for name, line in dict.fromkeys(defined_names(path)):
            for word in re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_"):
                if word in PRIVATE_WORDS:
                    place = f"{path.relative_to(ROOT).as_posix()}:{line}"
                    yield f"{place}: the name {name} has the private word {word}; use {PRIVATE_WORDS[word]}"


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
    complaints += [line for source in NAMED_SOURCES for line in private_words(ROOT / source)]
    print("\n".join(complaints) or "names: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
