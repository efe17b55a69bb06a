"""Checks that relative links and anchors of Markdown pages lead somewhere, and that pages that code names exist."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FENCE: Final = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`[^`\n]*`")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"")
HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
NAMED: Final = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md\b")
NAMES_PAGES: Final = (".py", ".yaml", ".json", ".md", ".toml", ".sh", "Makefile", "Dockerfile")
OLD_RESULTS: Final = "bench/results/"
"""Old reports may name pages that existed at their time."""
MADE_UP: Final = "tests/gate/test_costs.py"


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    found: set[str] = set()
    for title in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(1 for each in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each))
        found.add(f"{slug}-{number}" if number else slug)
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Yield a complaint for each broken link of a page."""
    for link in (one or other for one, other in LINK.findall(CODE.sub("", FENCE.sub("", text)))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"link to {path}, which does not exist{_like(target)}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"link to {link}, but {target.name} has no heading for #{anchor}"


def _like(target: Path) -> str:
    found = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob(target.name)]
    return f"; there is {', '.join(found)}" if found else "; docs/index.md lists all pages"


def complaints() -> Iterator[str]:
    """Yield all complaints about the files that git knows."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for file in files:
        path = ROOT / file
        if not path.is_file() or not file.endswith(NAMES_PAGES) or file.startswith(OLD_RESULTS) or file == MADE_UP:
            continue
        text = path.read_text(encoding="utf-8")
        found = [f"names {named}, which does not exist" for named in NAMED.findall(text) if not (ROOT / named).exists()]
        found += broken_links(path, text) if path.suffix == ".md" else ()
        yield from (f"{file}: {complaint}" for complaint in found)


def main() -> int:
    """Print every complaint; 1 if there is any."""
    found = list(complaints())
    print("\n".join(found) or "links: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
