"""The blocks of a Markdown page that its test runs.

A block `sh` is run by bash; `sh background` runs until the page ends. A block `text` right after either has lines
that the output must have, where `...` stands for anything and runs of spaces are equal. Of a block `console` the lines
with `$ ` are run, and the others are an example of their output. A block with a title is a file to write.
`not_run.toml` has the commands that no test runs.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
TABLE: Final = Path(__file__).with_name("not_run.toml")
BLOCK: Final = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PRINTED: Final = re.compile(r"\s*```text\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TITLE: Final = re.compile(r'title="([^"]+)"')
PROMPT: Final = "$ "
INLINE: Final = re.compile(r"`(kubectl (?:-n \S+ )?\w+ [^`]+)`")
NO_PLACE: Final = "..."
"""What a command has that leaves its end to the reader."""


class Write(NamedTuple):
    """A file that the page shows completely."""

    file: str
    text: str


class Run(NamedTuple):
    """Commands of the page, and the lines that they should print."""

    commands: str
    in_background: bool
    expected: tuple[str, ...]


class NotRun(NamedTuple):
    """A block that no test runs: its page, its first words, the reason, and what a test runs in its place."""

    page: str
    begins: str
    why: str
    instead: str = ""
    prints: tuple[str, ...] = ()


def not_run() -> list[NotRun]:
    """Return the table."""
    rows = tomllib.loads(TABLE.read_text("utf-8"))["block"]
    return [NotRun(**{**row, "prints": tuple(row.get("prints", ()))}) for row in rows]


def languages(page: Path) -> list[str]:
    """Return the language of each block, or "" if the page names none."""
    return [info.partition(" ")[0] for _, info, _ in BLOCK.findall(page.read_text("utf-8"))]


def steps(page: Path) -> Iterator[Write | Run]:
    """Yield the steps of a reader in order."""
    text = page.read_text("utf-8")
    for block in BLOCK.finditer(text):
        indent, info, commands = block[1], block[2], _unindented(block[3], block[1])
        if title := TITLE.search(info):
            yield Write(title[1], commands)
        elif info == "console":
            lines = [line.removeprefix(PROMPT) for line in commands.splitlines() if line.startswith(PROMPT)]
            yield Run("\n".join(lines), False, ())
        elif info in ("sh", "sh background"):
            printed = PRINTED.match(text, block.end())
            yield Run(commands, info != "sh", tuple(_unindented(printed[1], indent).splitlines()) if printed else ())


def inline_commands(page: Path) -> list[str]:
    """Return the commands of kubectl that sentences and tables of a page show, in order, each once."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    return list(dict.fromkeys(found for found in INLINE.findall(text) if NO_PLACE not in found))


def runnable(page: Path, table: list[NotRun]) -> Iterator[Write | Run]:
    """Yield the steps that a test does; the steps in the table are replaced by what it has in their place."""
    for step in steps(page):
        found = row_of(page, step, table) if isinstance(step, Run) else None
        if found is None:
            yield step
        elif found.instead:
            yield Run(found.instead, False, found.prints)


def row_of(page: Path, step: Run, table: list[NotRun]) -> NotRun | None:
    """Return the row of the table that is about these commands."""
    rows = [row for row in table if DOCS / row.page == page and step.commands.startswith(row.begins)]
    return rows[0] if rows else None


def lacking(expected: tuple[str, ...], output: str) -> list[str]:
    """Return the lines that the output lacks."""
    return [line for line in expected if not re.search(_pattern(line), output, re.MULTILINE)]


def _pattern(line: str) -> str:
    """Return a pattern in which a blank matches any number of blanks, also beside `...`."""
    words = [re.escape(word).replace(re.escape("..."), ".*") for word in line.split()]
    return "^ *" + " *".join(words) + " *$" if "..." in line else "^ *" + " +".join(words) + " *$"


def _unindented(text: str, indent: str) -> str:
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
