"""The folders that runs which ended early have left in an archive, and how the next run removes them.

A run's folder has the number of the ledger entry that is to name it. The run whose entry takes that number decides: a
folder with a number that another entry has can never count. So the run that begins takes the number of the leftovers by
an entry that brings nothing, and removes them then: their writer, if it lives after all, cannot commit removed files.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import LedgerSums

RUN: Final = re.compile(r"data/topic_id=[^/]+/run=(\d{8})-[0-9a-f]{12}")


class Leftovers(NamedTuple):
    """Folders of runs that no entry names; `fence` where the next number must be taken before they go."""

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
