"""The subjects of the matrix."""

from typing import Final

from matrix import transactions
from matrix.cells import Subject

SUBJECTS: Final[tuple[Subject, ...]] = transactions.SUBJECTS
