"""Our broker answers each request in each state as Apache Kafka was recorded to, or differently for a reason."""

from collections.abc import Iterator
from typing import Final

import pytest

from matrix.cells import Cell, Difference, Subject
from matrix.nodes import Nodes, barnabas
from matrix.subjects import SUBJECTS

ONE_IN: Final = 6
"""A test run asks one cell in so many; `make proof-matrix` asks all."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with barnabas(tmp_path_factory.mktemp("matrix")) as running:
        running.one_in = ONE_IN
        yield running


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.title)
def test_each_cell_is_answered_as_recorded_or_has_a_reason(nodes: Nodes, subject: Subject) -> None:
    recorded = {cell: text for cell, text in subject.recorded().items() if nodes.asks(cell)}
    assert len(recorded) > len(subject.recorded()) / ONE_IN / 2
    assert not [*subject.faults(subject.answers(nodes), recorded, is_whole=False)]


def test_a_cell_without_a_reason_and_a_reason_without_a_cell_are_faults() -> None:
    ending, adding = str(Cell("Open", "End", "a")), str(Cell("Open", "Add", "a"))
    reasons = (Difference("Open | End | *", "1*", "we can"), Difference("Open | Ask | *", "*", "nobody asks"))
    subject = Subject("example", lambda _: iter(()), reasons)
    found = [*subject.faults({ending: "12", adding: "3"}, {ending: "4", adding: "3"})]
    assert found == ["no cell differs as 'Open | Ask | *' says: nobody asks"]
    assert len([*subject.faults({ending: "2", adding: "3"}, {ending: "4"})]) == 4
