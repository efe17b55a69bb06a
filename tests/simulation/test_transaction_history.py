"""The checker of transactions finds the anomaly in each planted history, and none in possible ones."""

from collections.abc import Callable

import pytest

from simulation.committed_reader import Place
from simulation.transaction_history import NO_OFFSET, Sent, TransactionHistory

TOPIC = "t"


class Planted:
    """A history: p0/1 and p0/3 are committed with offsets, p0/2 is aborted, and the outcome of p0/4 is unknown."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.history = TransactionHistory(TOPIC, self.violations.append)
        for number in range(1, 5):
            self.history.sent(f"p0/{number}", Sent((0, 1), number))
        self.history.committed |= {"p0/1", "p0/3"}
        self.history.aborted.add("p0/2")
        self.logs = [["p0/1", "p0/3"], ["p0/1", "p0/3"]]
        self.offset = 3

    def check(self) -> list[str]:
        logs = [
            {Place(TOPIC, partition, offset): value for offset, value in enumerate(values)}
            for partition, values in enumerate(self.logs)
        ]
        self.history.check(logs, {"p0": self.offset})
        return self.violations


def commit_the_unknown_one(planted: Planted) -> None:
    planted.logs, planted.offset = [["p0/1", "p0/3", "p0/4"]] * 2, 4


def without_any(planted: Planted) -> None:
    planted.history.committed.clear()
    planted.logs, planted.offset = [[], []], NO_OFFSET


@pytest.mark.parametrize("change", [lambda _: None, commit_the_unknown_one, without_any])
def test_a_possible_history_has_no_anomaly(change: Callable[[Planted], None]) -> None:
    planted = Planted()
    change(planted)
    assert planted.check() == []


def lose(planted: Planted) -> None:
    planted.logs[1].remove("p0/3")


def tear(planted: Planted) -> None:
    planted.logs[0].append("p0/4")
    planted.offset = 4


def show_an_aborted_one(planted: Planted) -> None:
    planted.logs = [["p0/1", "p0/2", "p0/3"]] * 2


def show_one_for_a_while(planted: Planted) -> None:
    planted.history.saw(Place(TOPIC, 0, 2), "p0/4")


def show_an_aborted_one_for_a_while(planted: Planted) -> None:
    planted.history.saw(Place(TOPIC, 0, 2), "p0/2")


def show_another_value(planted: Planted) -> None:
    planted.history.saw(Place(TOPIC, 0, 0), "p0/1")
    planted.history.saw(Place(TOPIC, 0, 0), "p0/3")


def write_twice(planted: Planted) -> None:
    planted.logs = [["p0/1", "p0/3", "p0/3"]] * 2


def change_the_order(planted: Planted) -> None:
    planted.logs[1].reverse()


def let_a_zombie_write(planted: Planted) -> None:
    planted.logs[0].append("p0/2-zombie")


def answer_a_zombie(planted: Planted) -> None:
    planted.history.zombie_is_answered("EndTxn of p0/2-zombie")


def keep_an_earlier_offset(planted: Planted) -> None:
    planted.offset = 1


def commit_an_aborted_offset(planted: Planted) -> None:
    planted.history.check_offset("p0", 2, 1)


def go_back(planted: Planted) -> None:
    planted.history.is_stable_until(TOPIC, 0, 2)
    planted.history.is_stable_until(TOPIC, 0, 1)


def copy_twice(planted: Planted) -> None:
    planted.history.check_copies(["p0/1", "p0/3"], ["p0/1", "p0/1", "p0/3"], 2, 2)


def copy_without_the_offset(planted: Planted) -> None:
    planted.history.check_copies(["p0/1"], ["p0/1"], 0, 1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lose, "lost: "),
        (tear, "torn: "),
        (show_an_aborted_one, "aborted and seen: "),
        (show_an_aborted_one_for_a_while, "aborted and seen: "),
        (show_one_for_a_while, "seen and gone: "),
        (show_another_value, "two values at "),
        (write_twice, "twice or out of order: "),
        (change_the_order, "twice or out of order: "),
        (let_a_zombie_write, "zombie: "),
        (answer_a_zombie, "zombie: "),
        (keep_an_earlier_offset, "offsets apart from their transactions: "),
        (commit_an_aborted_offset, "offsets apart from their transactions: "),
        (go_back, "last stable offset of "),
        (copy_twice, "copied apart: "),
        (copy_without_the_offset, "copied apart: "),
    ],
)
def test_a_planted_anomaly_is_found_by_its_name(change: Callable[[Planted], None], name: str) -> None:
    planted = Planted()
    change(planted)
    found = planted.check()
    assert any(each.startswith(name) for each in found), found


def test_records_whose_loss_was_accepted_are_not_reported_as_lost() -> None:
    planted = Planted()
    lose(planted)
    planted.history.is_lossy = True
    assert planted.check() == []
