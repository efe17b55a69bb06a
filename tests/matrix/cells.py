"""The matrix: what a request is answered, and what the state is then, for each state, request and variant of a subject.

A subject is one module with a `Subject`, which `subjects.py` lists. Its function `ask` takes the running `Nodes`
(`nodes.py`), brings them into each state by real requests, sends the request of each cell, and yields the cell with one
line of text: the answer and, where it can be read, the next state. Use fresh names in each cell, since cells share the
nodes; write ids relative to those that the state began with, since servers allocate different ones.

A subject asks only the cells for which `Nodes.asks` is true: all in `python -m matrix`, one in ONE_IN in the tests.

`python -m matrix --only SUBJECT --write` records the answers of Apache Kafka into `answers/SUBJECT.txt`, one line for
each cell. Without `--write` it runs both servers, and compares both with the file. `test_answers_of_states.py` compares
our broker with the files. Cells in which our broker differs on purpose are in the `differences` of the subject, each
with a reason. A cell that differs without a reason fails, and so does a reason without such a cell.
"""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from matrix.nodes import Nodes

ANSWERS: Final = Path(__file__).with_name("answers")


class Cell(NamedTuple):
    """One request in one state, such as EndTxn v5 of an epoch that is one behind, in PrepareCommit."""

    state: str
    request: str
    variant: str

    def __str__(self) -> str:
        return f"{self.state} | {self.request} | {self.variant}"


class Difference(NamedTuple):
    """Cells in which our broker differs from Apache Kafka; `*` in `cells` and `ours` stands for any text."""

    cells: str
    ours: str
    because: str

    def explains(self, cell: str, ours: str) -> bool:
        """True if the answer of our broker in this cell is the one that the difference describes."""
        return fnmatchcase(cell, self.cells) and fnmatchcase(ours, self.ours)


class Subject(NamedTuple):
    """A part of the broker with states; `title` is the name of its file."""

    title: str
    ask: Callable[[Nodes], Iterator[tuple[Cell, str]]]
    differences: tuple[Difference, ...] = ()

    @property
    def path(self) -> Path:
        """Return the file with the answers of Apache Kafka."""
        return ANSWERS / f"{self.title}.txt"

    def answers(self, nodes: Nodes) -> dict[str, str]:
        """Return the answers of the nodes by cell."""
        found: dict[str, str] = {}
        for cell, text in self.ask(nodes):
            assert str(cell) not in found, f"{cell} comes twice"
            found[str(cell)] = text
        return found

    def recorded(self) -> dict[str, str]:
        """Return the answers of Apache Kafka that the file has."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return dict(line.split(": ", 1) for line in lines)

    def record(self, answers: Mapping[str, str]) -> None:
        """Write the file."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text("".join(f"{cell}: {text}\n" for cell, text in answers.items()), encoding="utf-8")

    def faults(self, ours: Mapping[str, str], kafka: Mapping[str, str], *, is_whole: bool = True) -> Iterator[str]:
        """Yield the cells that differ without a reason, and, of the whole matrix, the reasons that no cell needs."""
        unused = dict.fromkeys(self.differences if is_whole else ())
        for cell in dict.fromkeys([*kafka, *ours]):
            one, other = ours.get(cell, "no such cell"), kafka.get(cell, "no such cell")
            reasons = [each for each in self.differences if one != other and each.explains(cell, one)]
            if one != other and not reasons:
                yield f"{cell}: {one}, and of Apache Kafka: {other}"
            for each in reasons:
                unused.pop(each, None)
        yield from (f"no cell differs as {each.cells!r} says: {each.because}" for each in unused)
