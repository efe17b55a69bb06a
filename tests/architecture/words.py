"""Count what hides the meaning in docstrings, comments and messages of product code, in pages and in helpers of tests.

A count may fall, and never rise.

The rules are in CONTRIBUTING.md, the counts in `words.json` beside this file. `--places RULE` prints what counts for a
rule; `--write` writes the counts where all of them are equal or lower.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("broker/src", "operator/src", "spark-on-k8s/src")
HELPERS: Final = ("tests/harness", "tests/e2e", "tests/local_kubernetes", "tests/monitoring", "tests/torture")
"""Folders where docstrings of modules without tests are read for their openers."""
PAGES: Final = ("README.md", "SECURITY.md", "broker/DESIGN.md", "operator/DESIGN.md", "docs/**/*.md")
"""The pages that are read for words; CONTRIBUTING.md names the words."""
COUNTS: Final = Path(__file__).with_suffix(".json")
RUFF_RULES: Final = "D100,D101,D102,D103,D104,D202,D205,D209,D400,D401,D402,D403,D404"
OPENER: Final = "docstring opener"
NO_OPENERS: Final = """
    about after also always and another any anything as at be before besides between but by during either everything
    false for from he here how however if in inside instead into it its less like many may more much neither never no
    nobody none nor not nothing now of off often on once only or other others otherwise our out outside over past per
    rather same several she since so some somebody something somewhere still such than that their then there these they
    this those through till to too towards twice under until up upon we what whatever when where whether which while
    who whoever whom whose why with within without yet
"""
"""Words that begin neither a verb nor a noun with its article."""
PRONOUN: Final = re.compile(
    r"(one|all|each|the one|the ones|a thing) (that|this|who|whom|whose|which|of (which|these|them))\b", re.I
)
NO_VERB: Final = r': "(The|An?|Each|Every|True if) '
"""The beginnings without a verb that are allowed: ruff knows only verbs."""
WORDS: Final = (
    "told",
    "let go",
    "lets go",
    "anew",
    "by now",
    "whoever",
    "who has",
    "of which",
    "such as that",
    "what is there",
)


def places_of_words(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the rule and `file:line` of each banned word, also if it runs over the end of a line of a comment."""
    for word in WORDS:
        for found in re.finditer(rf"\b{word}\b".replace(" ", r"[\s#]+"), text, re.IGNORECASE):
            yield word, f"{name}:{text.count(chr(10), 0, found.start()) + 1}"


def places_of_openers(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the rule and `file:line` of each docstring, of an attribute too, that begins with a wrong word."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))) if begins_wrongly(docstring.split()):
                yield OPENER, f"{name}:{node.lineno} {docstring.split()[0]}"


def begins_wrongly(words: list[str]) -> bool:
    """True if the first words are neither a verb, nor "True if", nor a noun with its article."""
    return not words or words[0].strip("`,:").lower() in NO_OPENERS.split() or bool(PRONOUN.match(" ".join(words[:4])))


def places_of_ruff() -> Iterator[tuple[str, str]]:
    """Yield the rule and `file:line` of each docstring that ruff reports."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "check", "--quiet", "--select", RUFF_RULES, "--output-format", "json", *SOURCES]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for found in json.loads(output):
        if found["code"] == "D401" and re.search(NO_VERB, found["message"]):
            continue
        yield f"ruff {found['code']}", f"{Path(found['filename']).relative_to(ROOT)}:{found['location']['row']}"


def all_places() -> dict[str, list[str]]:
    """Return the places for each rule, also for rules without any."""
    places: dict[str, list[str]] = {
        rule: [] for rule in (OPENER, *WORDS, *(f"ruff {r}" for r in RUFF_RULES.split(",")))
    }
    for rule, place in places_of_ruff():
        places[rule].append(place)
    for name, text in texts(f"{source}/**/*.py" for source in SOURCES):
        for rule, place in (*places_of_words(name, text), *places_of_openers(name, text)):
            places[rule].append(place)
    for name, text in texts(PAGES):
        for rule, place in places_of_words(name, text):
            places[rule].append(place)
    for name, text in texts(f"{folder}/**/*.py" for folder in HELPERS):
        for rule, place in () if "/test_" in name else places_of_openers(name, text):
            places[rule].append(place)
    return places


def texts(patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file that one of the patterns matches."""
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def main() -> int:
    """Print the rules whose count is above the stored one; return 1 if there is any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", metavar="RULE", help="print the places that count for a rule, and check nothing")
    parser.add_argument("--write", action="store_true", help="write lower counts")
    arguments = parser.parse_args()
    places = all_places()
    if arguments.places:
        print("\n".join(places[arguments.places]))
        return 0
    counts = {rule: len(found) for rule, found in places.items()}
    stored = json.loads(COUNTS.read_text(encoding="utf-8"))
    higher = [rule for rule, count in counts.items() if count > stored.get(rule, 0)]
    for rule in higher:
        print(
            f"words: {rule!r}: {counts[rule]} places, {stored.get(rule, 0)} allowed; see `words.py --places {rule!r}`"
        )
    if arguments.write and not higher:
        COUNTS.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    if not higher:
        print(f"words: fine, {sum(stored.values()) - sum(counts.values())} fewer than stored")
    return 1 if higher else 0


if __name__ == "__main__":
    sys.exit(main())
