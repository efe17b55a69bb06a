"""`python -m documents PAGE...`: does what pages say in this folder, block by block; returns 1 at the first failure."""

import os
import sys
from pathlib import Path

from documents.reader import Reader, WrongPage


def do(pages: list[Path]) -> None:
    """Do pages one after the other; background programs end with the last one. Raises WrongPage."""
    folder = Path.cwd()
    reader = Reader(folder, os.environ, {"/archive": f"{folder}/archive"})
    with reader.until_ctrl_c():
        for page in pages:
            reader.do(page)


if __name__ == "__main__":
    try:
        do([Path(page).resolve() for page in sys.argv[1:]])
    except (WrongPage, AssertionError) as wrong:
        sys.exit(f"{' '.join(sys.argv[1:])}: {wrong}")
