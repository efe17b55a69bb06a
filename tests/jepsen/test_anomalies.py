"""The checker finds every anomaly in planted histories, and none in a clean one."""

import random
from itertools import pairwise

import pytest

from jepsen.anomalies import FORBIDDEN, Kind, anomalies
from jepsen.cycles import cycle_in, knots
from jepsen.history import Append, Entry, History, Outcome, Read, Transaction, Value

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def history(
    log: dict[int, str], *, reads: dict[int, list[str]] | None = None, aborted: str = "", unknown: str = ""
) -> History:
    """Make a history of lists in the form "1.0 2.0 |1 1.1": values, and `|1`, the marker of transaction 1.

    A read is "KEY START END VALUES", with the sign `+` after END if it ended at the last stable offset.
    """
    outcomes = {
        **dict.fromkeys(map(int, aborted.split()), ABORTED),
        **dict.fromkeys(map(int, unknown.split()), UNKNOWN),
    }
    transactions: dict[int, Transaction] = {}

    def transaction(number: int) -> Transaction:
        made = Transaction(number, outcome=outcomes.get(number, COMMITTED), asked_s=10.0)
        return transactions.setdefault(number, made)

    everything: dict[int, list[Entry]] = {}
    for key, words in log.items():
        placed = [(offset, word) for offset, word in enumerate(words.split()) if not word.startswith("|")]
        everything[key] = [Entry(offset, Value.parse(word.encode())) for offset, word in placed]
        for entry in everything[key]:
            append = Append(key, entry.value)
            if append not in transaction(entry.value.transaction).appends:
                transaction(entry.value.transaction).appends.append(append)
    for number, texts in (reads or {}).items():
        transaction(number).reads += [_read(text, everything) for text in texts]
    committed = {
        key: [entry for entry in entries if transactions[entry.value.transaction].outcome is not ABORTED]
        for key, entries in everything.items()
    }
    return History(transactions, committed, everything)


def _read(text: str, everything: dict[int, list[Entry]]) -> Read:
    key, start, end, *words = text.split()
    values = [Value.parse(word.encode()) for word in words]
    entries = tuple(entry for entry in everything[int(key)] if entry.value in values)
    return Read(int(key), int(start), int(end.rstrip("+")), entries, end.endswith("+"), 20.0)


def kinds(of: History) -> set[Kind]:
    return {anomaly.kind for anomaly in anomalies(of)}


def clean() -> History:
    """Make a history with two lists, an aborted transaction, and reads that end at allowed offsets."""
    return history(
        {1: "1.0 1.1 |1 2.0 |2 4.0 4.1 |4", 2: "1.2 |1 3.0 |3 4.2 |4"},
        reads={2: ["1 0 3+ 1.0 1.1"], 4: ["1 0 3 1.0 1.1", "2 0 4+ 1.2"]},
        aborted="3",
    )


def test_a_clean_history_has_no_anomaly() -> None:
    assert anomalies(clean()) == []


def test_reads_that_follow_each_other_are_no_cycle() -> None:
    chain = {number: [f"1 0 {2 * number - 2}+ " + " ".join(f"{n}.0" for n in range(1, number))] for number in (2, 3, 4)}
    assert anomalies(history({1: "1.0 |1 2.0 |2 3.0 |3 4.0 |4"}, reads=chain)) == []


WRITE_CYCLE = history({1: "1.0 2.0 |1 |2", 2: "2.1 1.1 |1 |2"})
MIXED_CYCLE = history({1: "1.0 2.0 |2 |1", 2: "2.1 |2"}, reads={1: ["2 0 2+ 2.1"]})
MISSED_CYCLE = history({1: "1.0 |1", 2: "2.0 |2"}, reads={1: ["2 0 0+"], 2: ["1 0 0+"]})
CIRCULAR = history(
    {1: "1.0 |1", 2: "2.0 |2", 3: "3.0 |3"}, reads={1: ["2 0 2 2.0"], 2: ["3 0 2 3.0"], 3: ["1 0 2 1.0"]}
)
ABORTED_READ = history({1: "1.0 |1", 2: "2.0 |2"}, reads={2: ["1 0 2+ 1.0"]}, aborted="1")
INTERMEDIATE = history({1: "1.0 1.1 |1", 2: "2.0 |2"}, reads={2: ["1 0 1+ 1.0"]})
SKIPPED = history({1: "1.0 |1 2.0 |2", 2: "3.0 |3"}, reads={3: ["1 0 4+ 2.0"]})
OWN_VALUE = history({1: "1.0 |1"}, reads={1: ["1 0 2+ 1.0"]})


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (WRITE_CYCLE, Kind.WRITE_CYCLE),
        (MIXED_CYCLE, Kind.MIXED_CYCLE),
        (MISSED_CYCLE, Kind.MISSED_CYCLE),
        (CIRCULAR, Kind.CIRCULAR),
        (ABORTED_READ, Kind.ABORTED),
        (INTERMEDIATE, Kind.INTERMEDIATE),
        (SKIPPED, Kind.SKIPPED),
        (OWN_VALUE, Kind.EARLY),
    ],
)
def test_an_anomaly_of_reads_or_cycles_is_found(planted: History, kind: Kind) -> None:
    assert kind in kinds(planted)
    assert kinds(planted) & FORBIDDEN == {kind} & FORBIDDEN


def test_only_cycles_that_kafka_allows_are_legal() -> None:
    legal = [kinds(each) & FORBIDDEN for each in (WRITE_CYCLE, MIXED_CYCLE, MISSED_CYCLE)]
    assert legal == [set(), set(), set()]
    assert Kind.CIRCULAR in FORBIDDEN


@pytest.mark.parametrize("aborted", ["", "2"])
def test_a_read_may_end_within_a_transaction_where_another_one_began(aborted: str) -> None:
    planted = history({1: "1.0 2.0 1.1 |1 |2", 2: "3.0 |3"}, reads={3: ["1 0 1+ 1.0"]}, aborted=aborted)
    assert kinds(planted) & FORBIDDEN == set()


def test_a_committed_write_that_is_missing_is_lost() -> None:
    planted = clean()
    del planted.committed[1][1]
    planted.transactions[2].reads.clear()
    planted.transactions[4].reads.clear()
    assert kinds(planted) == {Kind.LOST}


@pytest.mark.parametrize("is_torn", [True, False])
def test_the_writes_of_an_unknown_transaction_are_all_visible_or_none(is_torn: bool) -> None:
    planted = history({1: "1.0 |1", 2: "1.1 |1"}, unknown="1")
    planted.committed[2].clear()
    if not is_torn:
        planted.committed[1].clear()
    assert kinds(planted) == ({Kind.LOST} if is_torn else set())


def test_a_write_that_was_read_and_is_missing_is_lost() -> None:
    planted = history({1: "1.0 |1", 2: "2.0 |2"}, reads={2: ["1 0 2+ 1.0"]}, unknown="1")
    planted.committed[1].clear()
    planted.everything[1].clear()
    assert kinds(planted) == {Kind.LOST}


def test_a_write_that_is_stored_twice_is_a_duplicate() -> None:
    assert kinds(history({1: "1.0 1.1 1.0 |1"})) == {Kind.DUPLICATE, Kind.REORDERED}
    assert kinds(history({1: "1.0 1.0 |1"}, aborted="1")) == {Kind.DUPLICATE}


def test_an_aborted_write_among_the_committed_ones_is_an_aborted_read() -> None:
    planted = history({1: "1.0 |1"}, aborted="1")
    planted.committed[1] = planted.everything[1]
    assert kinds(planted) == {Kind.ABORTED}


def test_a_value_that_no_transaction_appended_is_invented() -> None:
    planted = clean()
    planted.transactions[2].appends.clear()
    assert kinds(planted) == {Kind.INVENTED}


def test_a_value_that_is_read_before_its_commit_was_requested_is_found() -> None:
    planted = clean()
    planted.transactions[1].asked_s = 30.0
    assert kinds(planted) == {Kind.EARLY}


def test_knots_are_the_sets_of_nodes_that_reach_each_other() -> None:
    chance = random.Random(1)
    for _ in range(50):
        graph = {node: {chance.randrange(12) for _ in range(chance.randrange(3))} for node in range(12)}
        found = knots(graph)
        together = {frozenset(knot) for knot in found}
        expected = {frozenset(n for n in graph if _reaches(graph, m, n) and _reaches(graph, n, m)) for m in graph}
        assert together == {knot for knot in expected if len(knot) > 1}
        for knot in found:
            nodes = cycle_in(graph, knot)
            assert nodes[0] == nodes[-1]
            assert all(later in graph[one] for one, later in pairwise(nodes))


def _reaches(graph: dict[int, set[int]], source: int, target: int) -> bool:
    seen, waiting = {source}, [source]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return target in seen
