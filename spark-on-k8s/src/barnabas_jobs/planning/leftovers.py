"""The folders that crashed runs left in an archive, and how the next run removes them.

A run's folder bears the number of the ledger entry that will name it. Only one run can write the entry of a number, so
a folder can never count once another run has written that entry. The next run therefore writes an empty entry with the
number of the leftovers, and then removes them: even if their writer is still alive, it cannot commit removed files.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import LedgerSums

RUN: Final = re.compile(r"data/topic_id=[^/]+/run=(\d{8})-[0-9a-f]{12}")


class Leftovers(NamedTuple):
    """Folders of runs that no entry names; `fence` is true if an empty entry must be written before their removal."""

    runs: list[str]
    fence: bool


def leftovers(ledger: LedgerSums, folders: Iterable[str], archive: str) -> Leftovers:
    """Find the leftovers among all folders of an archive, by their paths in it.

    Raises JobFailed if the folders show that entries are lost.
    """
    unnamed = (folder for folder in folders if folder not in ledger.runs)
    numbers = {folder: int(found[1]) for folder in unnamed if (found := RUN.fullmatch(folder))}
    following = ledger.count
    for folder, number in numbers.items():
        if number > following:
            raise JobFailed(
                f"archive={archive}: {folder} is of ledger entry {number}, and the ledger ends before {following}: the "
                "files of its last entries are missing. Put them back from a backup, or from `_entry.json` beside the "
                "data; nothing was removed."
            )
    return Leftovers(sorted(numbers), following in numbers.values())
