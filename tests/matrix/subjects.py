"""The subjects of the matrix, in the order of transaction.version: it is not lowered while transactions are open."""

from typing import Final

from matrix import consumer_groups, groups, partition_producers, transactions
from matrix.cells import Subject

_ALL: Final = (*transactions.SUBJECTS, *partition_producers.SUBJECTS, *groups.SUBJECTS, *consumer_groups.SUBJECTS)
_LOWEST: Final = ("-0", "-1")
SUBJECTS: Final[tuple[Subject, ...]] = tuple(
    sorted(_ALL, key=lambda each: _LOWEST.index(each.title[-2:]) if each.title.endswith(_LOWEST) else len(_LOWEST))
)
