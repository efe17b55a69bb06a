"""The folders that interrupted runs left in an archive.

The name of a run folder contains the number of the ledger entry that is to commit the folder. Only one run can write
the entry with a given number, so the folder can no longer be committed once another run has written that entry. The
next run therefore first writes an empty entry with this number, and then removes the folder. If the interrupted run is
in fact still alive, it cannot commit files that were removed.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import LedgerSums

RUN: Final = re.compile(r"data/topic_id=[^/]+/run=(\d{8})-[0-9a-f]{12}")


class Leftovers(NamedTuple):
    """The run folders that no ledger entry names.

    `fence` is true if an empty ledger entry must be written before the folders are removed, so that an interrupted run
    can no longer commit its folder.
    """

    runs: list[str]
    fence: bool


def leftovers(ledger: LedgerSums, folders: Iterable[str], archive: str) -> Leftovers:
    """Find, among all run folders of an archive, those that interrupted runs left.

    Raises JobFailed if a folder shows that ledger entries are missing.
    """
    unnamed = (folder for folder in folders if folder not in ledger.runs)
    numbers = {folder: int(found[1]) for folder in unnamed if (found := RUN.fullmatch(folder))}
    following = ledger.count
    for folder, number in numbers.items():
        if number > following:
            raise JobFailed(
                f"archive={archive}: {folder} belongs to entry {number} of the archive's ledger, but the ledger ends "
                f"before entry {following}: the ledger files of the last entries are missing. Restore these files from "
                "a backup, or copy `_entry.json` from the run folders to the ledger. The job removed no files."
            )
    return Leftovers(sorted(numbers), following in numbers.values())
