"""The subjects of the matrix, those of transaction.version 0 first: it is not lowered while transactions are open."""

from typing import Final

from matrix import consumer_groups, groups, partition_producers, transactions
from matrix.cells import Subject

_ALL: Final = (*transactions.SUBJECTS, *partition_producers.SUBJECTS, *groups.SUBJECTS, *consumer_groups.SUBJECTS)
SUBJECTS: Final[tuple[Subject, ...]] = tuple(sorted(_ALL, key=lambda each: not each.title.endswith("-0")))
