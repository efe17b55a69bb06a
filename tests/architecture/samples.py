"""Print a random sample of docstrings, comments and messages of product code, to be judged by a reader.

The seed is printed, so that a sample can be drawn again: `samples.py --seed 7 --count 60`.
"""

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple

from words import ROOT, SOURCES

MESSAGE_WORDS_MIN: Final = 4
"""The number of words from which on a string counts as a message."""
CEL_KEYS: Final = ("rule", "messageExpression")
"""The keys of a CRD's validations whose values are CEL, not prose."""
SQL: Final = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|EXPLAIN)\b")


class Sample(NamedTuple):
    """A text, with the place where it begins."""

    kind: str
    place: str
    text: str


def samples_of(name: str, text: str) -> Iterator[Sample]:
    """Yield every docstring, message and comment of a file; a comment with its line of code, or with the next line."""
    tree = ast.parse(text)
    seen = set(_code_of(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            seen.add(node.value)
            yield Sample("docstring", f"{name}:{node.lineno}", node.value.value)
        elif isinstance(node, ast.JoinedStr | ast.Constant) and node not in seen:
            seen.update(node.values if isinstance(node, ast.JoinedStr) else ())
            message = _message(node)
            if len(message.split()) >= MESSAGE_WORDS_MIN:
                yield Sample("message", f"{name}:{node.lineno}", message)
    yield from _comments_of(name, text)


def _comments_of(name: str, text: str) -> Iterator[Sample]:
    """Yield the comments of a file; a comment of several lines is one text, with the line of code after it."""
    lines, whole = [*text.splitlines(keepends=True), ""], ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# type:", "# noqa:")):
            continue
        following = lines[token.start[0]]
        stands_alone = token.line.strip() == token.string
        whole += token.line
        if stands_alone and following.lstrip().startswith("#"):
            continue
        yield Sample("comment", f"{name}:{token.start[0]}", whole + following if stands_alone else whole)
        whole = ""


def _code_of(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that hold code of another language: CEL, regular expressions and SQL."""
    for node in ast.walk(tree):
        match node:
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                found = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value in CEL_KEYS]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))) | ast.Call(func=ast.Name(id="Pattern")):
                found = node.args[:1]
            case ast.JoinedStr() | ast.Constant() if SQL.match(_message(node).removeprefix("f").lstrip("'\"")):
                found = [node]
            case _:
                continue
        yield from (each for value in found for each in ast.walk(value) if isinstance(each, ast.expr))


def _message(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.JoinedStr):
        return ast.unparse(node)
    return node.value if isinstance(node.value, str) else ""


def all_samples() -> list[Sample]:
    """Return the texts of all product code, in the order of files and lines."""
    paths = sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    return [
        each
        for path in paths
        for each in samples_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Print the seed and the sample: equally many texts of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="default: a random one")
    parser.add_argument("--count", type=int, default=60, help="default: %(default)s")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    chance, found = random.Random(arguments.seed), all_samples()
    for kind in ("docstring", "comment", "message"):
        chosen = chance.sample([each for each in found if each.kind == kind], arguments.count // 3)
        for each in sorted(chosen, key=lambda sample: sample.place):
            print(f"\n{each.kind} {each.place}\n{each.text.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
