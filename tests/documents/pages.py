"""The blocks of a Markdown page that its test runs.

A block `sh` is run by bash; `sh background` runs until the page ends. A block `text` behind either has lines that the
output must have, where `...` stands for anything and runs of spaces are alike. A block with a title is a file to write.
Other blocks are only for people.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TITLE: Final = re.compile(r'title="([^"]+)"')


class Write(NamedTuple):
    """A file that the page shows in whole."""

    file: str
    text: str


class Run(NamedTuple):
    """Commands of the page, and the lines that it says they print."""

    commands: str
    in_background: bool
    expected: tuple[str, ...]


def steps(page: Path) -> Iterator[Write | Run]:
    """Yield what a reader does, in order."""
    blocks = [(info, _unindented(text, indent)) for indent, info, text in BLOCK.findall(page.read_text("utf-8"))]
    for number, (info, text) in enumerate(blocks):
        if title := TITLE.search(info):
            yield Write(title[1], text)
        elif info in ("sh", "sh background"):
            following, printed = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            yield Run(text, info != "sh", tuple(printed.splitlines()) if following == "text" else ())


def lacking(expected: tuple[str, ...], output: str) -> list[str]:
    """Return the lines that the output does not have."""
    return [line for line in expected if not re.search(_pattern(line), output, re.MULTILINE)]


def _pattern(line: str) -> str:
    """A blank of the line stands for any number of them, also beside `...`."""
    words = [re.escape(word).replace(re.escape("..."), ".*") for word in line.split()]
    return "^ *" + " *".join(words) + " *$" if "..." in line else "^ *" + " +".join(words) + " *$"


def _unindented(text: str, indent: str) -> str:
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
