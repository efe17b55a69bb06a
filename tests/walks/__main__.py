"""`make walks`: the product files that requests to a broker and rounds of the operator enter.

A reader who follows a request has to open that many files. `files.toml` has the most that each walk may enter.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from walks.profiled import Walk
from walks.requests_to_a_broker import walks_of_requests
from walks.rounds_of_the_operator import walks_of_rounds

STORED: Final = Path(__file__).with_name("files.toml")


def bounds() -> dict[str, int]:
    """Return the most files that each walk may enter."""
    stored: dict[str, int] = tomllib.loads(STORED.read_text(encoding="utf-8"))["files"]
    return stored


def all_walks() -> dict[str, Walk]:
    """Perform and return all walks."""
    return walks_of_requests() | walks_of_rounds()


def complaints(walks: Mapping[str, Walk], allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each walk that enters more files than allowed."""
    for name, walk in walks.items():
        entered, most = len(walk.files), allowed.get(name, 0)
        if entered > most:
            yield f"{name} enters {entered} files, {most} allowed: tests/walks/files.toml says when it may be more"


def main() -> int:
    """Print all walks, with `--files` their files too; return 1 if one enters more files than allowed."""
    parser = argparse.ArgumentParser(prog="make walks", description=__doc__)
    parser.add_argument("--files", action="store_true", help="print the files of each walk, with the calls in each")
    arguments = parser.parse_args()
    walks, allowed = all_walks(), bounds()
    for name, walk in walks.items():
        print(f"{name:<42}{len(walk.files):>4} files, at most {allowed.get(name, 0)} allowed{walk.calls:>8} calls")
        if arguments.files:
            print("\n".join(walk.lines()))
    found = list(complaints(walks, allowed))
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
